"""Engines that are weak in one known place (tests/engines): the rig finds each weakness, and only where it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rig.contract.results import Verdict, VerdictKind

ROOT = Path(__file__).parents[2]
_LIMIT_S = 1500


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the rig as a user does who has these engines installed."""
    return subprocess.run(
        [Path(sys.executable).with_name("rig"), "run", *words, "--no-explain", "--run-dir", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "engines"), "COLUMNS": "140"},
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip


def verdicts(folder: Path, scenario: str) -> list[Verdict]:
    # Collecting tests must not load what is heavy.
    from rig.store import Run

    found, damaged = Run.open(folder).verdicts(scenario)
    assert not damaged
    return found


def kinds(folder: Path, scenario: str) -> Counter[VerdictKind]:
    return Counter(one.kind for one in verdicts(folder, scenario))


@pytest.mark.parametrize(("device", "is_kept"), [("ssd-sata", False), ("nvme-64k", True)])
def test_a_block_of_64_kib_survives_a_power_cut_where_the_disk_writes_it_atomically(
    device: str, is_kept: bool, tmp_path: Path
) -> None:
    scenario = "blockfile-ext4-always_powercut"
    # What is kept is kept only if the controls have fired.
    done = ran(tmp_path, scenario, "--device", device, *([] if is_kept else ["--no-controls"]))
    found = kinds(tmp_path, scenario)
    if is_kept:
        assert 0 == done.returncode, done.stdout + done.stderr
        assert {VerdictKind.DURABLE} == set(found)
    else:
        assert 1 == done.returncode, done.stdout + done.stderr
        assert {VerdictKind.DURABLE, VerdictKind.UNOPENABLE} == set(found)
        assert found[VerdictKind.UNOPENABLE] > found[VerdictKind.DURABLE] / 10
    assert found.total() > 100


def test_a_database_that_is_lost_when_its_creation_is_cut_is_found_by_creation_and_life_alone(tmp_path: Path) -> None:
    names = [f"latemanifest-ext4-always{workload}_powercut" for workload in ("", ".creation", ".life")]
    done = ran(tmp_path, *names, "--no-controls")
    assert 1 == done.returncode, done.stdout + done.stderr
    ledger, creation, life = (kinds(tmp_path, name) for name in names)
    assert {VerdictKind.DURABLE} == set(ledger)
    for found in (creation, life):
        assert {VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX} == set(found)
    lost = [one for one in verdicts(tmp_path, names[1]) if one.lost]
    # All of it, until the first checkpoint: six transactions, and the creation is the first.
    assert {0} == {one.recovered for one in lost}
    assert {1, 2, 3, 4, 5} == {one.acked for one in lost}
