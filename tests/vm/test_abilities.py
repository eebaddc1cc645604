"""What a program meets in the two kinds of machines is what the page on limits says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rig.campaign.record import record
from rig.contract.findings import FindingKind
from rig.engines.builds import library_for
from rig.machines.guests import guests
from rig.recordings.timeline import Timeline
from tests.vm.samples import findings, open_recording
from tests.vm.test_program import ROOT, durable_at, scenario_of

_ROW = re.compile(r"^\| ([a-z_]+) \| ([\w ]+) \| ([\w ]+) \|$", re.MULTILINE)
_ABILITY = re.compile(r"(\w+)=(\w+(?: [GM]iB)?)")


def test_machines_can_do_what_the_page_on_limits_says(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    library = library_for({"program"}, str(Path(__file__).with_name("abilities")))
    scenario = scenario_of(library, 1)
    with guests([library]) as source:
        machines = source.of(scenario)
        assert machines.user_mode
        with open_recording(record(scenario, machines.recorder, tmp_path)) as (_, log):
            states = [durable_at(log, Timeline(log.marks).acks[-1].entry_index)]
            (emulated,), (native,) = (
                findings(scenario, kind, log, states) for kind in (machines.verifier, machines.user_mode)
            )
    assert FindingKind.UNOPENABLE is emulated.kind is native.kind
    emulator, user_mode = (dict(_ABILITY.findall(each.detail.replace("-", " "))) for each in (emulated, native))
    rows = _ROW.findall((ROOT / "docs" / "explanation" / "limits.md").read_text())
    assert len(rows) > 8
    assert [(name, emulator[name], user_mode[name]) for name, _, _ in rows] == rows
    for found in (emulator, user_mode):
        assert 550 < int(found["ram"].removesuffix(" MiB")) < 650
