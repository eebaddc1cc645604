"""A host may be moved while it runs: KVM that answered when it was probed may not answer any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.host.files import atomic_write
from rig.images import image, recipes
from rig.machines import accelerator, guests
from rig.machines.argv import Accelerator
from rig.planning import matrix


def test_a_probe_that_holds_no_longer_is_made_again_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel that spins under KVM is given up sooner, and twice here.
    monkeypatch.setattr(accelerator, "_PROBE_LIMIT_S", 6)
    # A note of its own: other tests read the note of the cache meanwhile.
    for module in (accelerator, guests):
        monkeypatch.setattr(module, "note_of", lambda _: tmp_path / "note")
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    guest = image.build(recipes.recipe_of(scenario))
    true = accelerator.best_accelerator(guest)
    note = accelerator.note_of(guest)
    if not note.exists():
        # Without KVM's device nothing is noted, and there is nothing that could hold no longer.
        assert Accelerator.TCG is true.accelerator
        return
    asked = note.read_text().split("\n")[0]
    # Where KVM works this note is true, and nothing is left to be found out.
    atomic_write(note, f"{asked}\n{Accelerator.KVM}\na machine under KVM answered\n".encode())
    said: list[str] = []
    with guests.guests(says=said.append) as source:
        found = source.of(scenario).verifier
    assert true.accelerator is found.spec.accelerator
    assert true == accelerator.best_accelerator(guest)
    if true.accelerator is Accelerator.TCG:
        assert any("fails now, so it is probed again" in line for line in said)
        assert said[-1].startswith("crash states are checked ")
