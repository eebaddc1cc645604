"""File systems other than ext4 in machines: what was synced survives, and their damage is not the database's."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.campaign.record import record
from rig.contract.scenario import Scenario
from rig.faults import EntryFlag, Fault, Logs, WriteLog, epochs, everything_unflushed_lost, plan
from rig.filesystems import filesystem_named
from rig.images import recipes
from rig.machines.guests import Machines, guests
from rig.planning import matrix
from rig.recordings import archive
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from tests.vm.samples import SHORT, Entry, findings, open_recording, write_log

_RUN_BYTES = 1 << 16
_UUID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
# XFS: the number of an inode, the first file's, in the inode itself. Btrfs: the beginning of the database.
# f2fs: the number of the database's inode, twice, and that it was synced, at the end of the inode.
_BROKEN = {
    "xfs": (131).to_bytes(8, "big") + _UUID.bytes,
    "btrfs": b"SQLite format 3\0",
    "f2fs": (4).to_bytes(4, "little") * 2 + (3).to_bytes(4, "little"),
}


def scenario_on(word: str) -> Scenario:
    (scenario,) = matrix.select([f"sqlite-{word}-wal_full_powercut"])
    return replace(scenario, workload=SHORT)


@pytest.mark.parametrize("word", ["xfs", "btrfs", "f2fs"])
@pytest.mark.representative
def test_what_was_synced_survives_and_a_flipped_bit_is_the_file_systems(word: str, tmp_path: Path) -> None:
    scenario = scenario_on(word)
    with guests() as source:
        machines = source.of(scenario)
        assert recipes.recipe_of(scenario).digest in machines.verifier.image
        record(scenario, machines.recorder, tmp_path / "recording")
        recording = archive.load(tmp_path / "recording")
        assert recording
        _survives_and_breaks(scenario, recording, machines, tmp_path)


def test_the_attribute_of_the_directory_reaches_every_file_of_the_database_and_is_read_back(tmp_path: Path) -> None:
    scenario = scenario_on("btrfs.nocow")
    with guests() as source:
        record(scenario, source.of(scenario).recorder, tmp_path / "recording")
    recording = archive.load(tmp_path / "recording")
    assert recording
    assert "C" == recording.facts.filesystem["attributes"]
    # The mount option of the other variant is not what does it.
    assert not {"nodatacow", "nodatasum"} & set(recording.facts.filesystem["mount"].split(","))


def _survives_and_breaks(scenario: Scenario, recording: Recording, machines: Machines, tmp_path: Path) -> None:
    word = scenario.filesystem
    assert filesystem_named(word).disk_mib_min == recording.facts.disk_mib
    with open_recording(recording) as (_, log):
        timeline = Timeline(log.marks)
        states = plan(Fault.POWERCUT, Logs(log), first_entry=timeline.setup.entry_index, states_max=12, seed=1).states
        found = findings(scenario, machines.checker, log, states)
        disk = log.replay(log.entry_count, log.device_bytes).tobytes()
    assert {"prefix"} == {finding.kind for finding in found}
    assert all(
        timeline.acked_count(state.instant) <= (one.recovered or 0) for state, one in zip(states, found, strict=True)
    )
    assert len({one.recovered for one in found}) > 2, "all cuts are alike"

    path = write_log(tmp_path / "log", disk_then_flips(disk, _BROKEN[word]))
    with WriteLog.open(path, device_bytes=len(disk)) as log:
        whole, broken = (everything_unflushed_lost(log, epochs(log), end) for end in flushes(log))
        sound, damaged = findings(scenario, machines.verifier, log, [whole, broken])
    assert ("prefix", 8) == (sound.kind, sound.recovered)
    assert ("file-system-damage", None) == (damaged.kind, damaged.recovered)
    assert f"{word} counted " in damaged.detail


def disk_then_flips(disk: bytes, broken: bytes) -> list[Entry]:
    """A log that writes a disk, and then its blocks in which these bytes are with one bit of them flipped."""
    runs = range(0, len(disk), _RUN_BYTES)
    entries = [Entry(at // 512, 0, disk[at : at + _RUN_BYTES]) for at in runs if any(disk[at : at + _RUN_BYTES])]
    flips, at = [], disk.find(broken)
    while at >= 0:
        sector = disk[at // 512 * 512 :][:512]
        flips.append(Entry(at // 512, 0, sector.replace(broken, bytes([broken[0] ^ 1]) + broken[1:])))
        at = disk.find(broken, at // 512 * 512 + 512)
    flush = Entry(0, EntryFlag.FLUSH)
    return [*entries, flush, *flips, flush, Entry(0, EntryFlag.MARK, text=b"end")]


def flushes(log: WriteLog) -> Sequence[int]:
    """The entries after each FLUSH."""
    return [number + 1 for number in range(log.entry_count) if log.flags[number] & EntryFlag.FLUSH]
