"""A file system with a copy on each of two disks, in the guest: both are cut, and one damaged copy is mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.findings import FindingKind
from rig.contract.results import VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Disk, Logs, everything_unflushed_lost
from rig.faults.damage import BLOCK_BYTES, Flip
from rig.faults.twodisk import JointState, make_joint
from rig.machines.record import record
from rig.machines.template import Template
from rig.planning import matrix
from rig.recordings import archive
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from tests.vm.samples import SHORT, findings
from tests.vm.test_twodisk import judged, planned

# The superblock and its copy, each of one block.
_SUPERBLOCKS = {(64 << 10) // BLOCK_BYTES, (64 << 20) // BLOCK_BYTES}
_BIT_COUNT = 8


def scenario_with(settings: str) -> Scenario:
    (scenario,) = matrix.select([f"sqlite-btrfs.raid1-{settings}_twodisk"])
    return replace(scenario, workload=SHORT)


@pytest.fixture(scope="module")
def mirrored(recorder: Template, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder: Path = tmp_path_factory.mktemp("mirrored")
    record(scenario_with("wal_full"), recorder, folder)
    found = archive.load(folder)
    assert found
    return found


def test_both_copies_are_recorded_and_whatever_was_synced_survives_two_cuts(
    mirrored: Recording, verifier: Template
) -> None:
    assert mirrored.facts.disks_mib[0] == mirrored.facts.disks_mib[1]
    assert "num_devices: 2" in mirrored.facts.filesystem["format"]
    with mirrored.opened() as logs:
        chosen = planned(logs, 24)
        assert {Disk.A, Disk.B} == {state.late for state in chosen}
        assert any(state.is_apart for state in chosen)
        found = judged(scenario_with("wal_full"), verifier, logs.first, chosen)
    assert {VerdictKind.DURABLE} == set(found), Counter(found)
    assert len(found) > 12


def test_a_damaged_copy_is_mended_from_the_other_and_two_damaged_copies_are_the_file_systems_damage(
    mirrored: Recording, verifier: Template
) -> None:
    with mirrored.opened() as logs:
        legs: list[Collection[Disk]] = [(), (Disk.A,), (Disk.B,), tuple(Disk)]
        states: list[CrashState] = [_damaged(logs, which) for which in legs]
        whole, first, second, both = findings(scenario_with("wal_full"), verifier, logs.first, states)
        wanted = (FindingKind.PREFIX, len(Timeline(logs.first.marks).acks))
    assert [wanted] * 3 == [(one.kind, one.recovered) for one in (whole, first, second)]
    assert not whole.repaired
    # Which copy is read depends on the number of the process that reads; a wrong copy that is not read is not noticed.
    assert first.repaired or second.repaired
    assert FindingKind.FILESYSTEM_DAMAGE == both.kind


def _damaged(logs: Logs, which: Collection[Disk]) -> JointState:
    """Both disks as they were at the end, with bits flipped in all that was written to some of them since the setup."""
    setup = Timeline(logs.first.marks).setup
    states: dict[Disk, CrashState] = {}
    for disk, side in logs.pair.sides.items():
        log = side.log
        state = everything_unflushed_lost(log, side.epochs, log.entry_count)
        since = side.marks[logs.pair.mark_number(setup.entry_index)]
        written = [
            (int(log.offset_bytes[entry]), int(log.payload_bytes[entry]))
            for entry in range(since, log.entry_count)
            if log.payload_bytes[entry]
        ]
        blocks = {
            block for begin, size in written for block in range(begin // BLOCK_BYTES, (begin + size) // BLOCK_BYTES)
        }
        flips = tuple(
            Flip(block * BLOCK_BYTES, BLOCK_BYTES, _BIT_COUNT, block) for block in sorted(blocks - _SUPERBLOCKS)
        )
        if disk in which:
            assert len(flips) > _BIT_COUNT
            state = replace(state, id=state.id + "".join(flip.text for flip in flips), damages=flips)
        states[disk] = state
    return make_joint(logs.pair, Disk.A, states[Disk.A], states[Disk.B])


def test_without_syncs_both_copies_lose_what_was_acknowledged(
    recorder: Template, verifier: Template, tmp_path: Path
) -> None:
    scenario = scenario_with("delete_off")
    record(scenario, recorder, tmp_path)
    made = archive.load(tmp_path)
    assert made
    with made.opened() as logs:
        found = judged(scenario, verifier, logs.first, planned(logs, 12))
    assert VerdictKind.LOST_SUFFIX in found, Counter(found)
