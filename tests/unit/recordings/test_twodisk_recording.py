"""A recording with two logs: both are kept and checked; a damaged one is reported with its file, a void one refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import zstandard

from rig.contract.errors import RecordingError
from rig.contract.geometry import CHUNK_BYTES, disk_digest
from rig.contract.results import LogFacts
from rig.faults import DiskLetter, LogError, WriteLog
from rig.filesystems.ext import DISK_MIB, JOURNAL_DISK_MIB
from rig.recordings import soundness
from rig.recordings.archive import Recording, load
from tests.unit.faults.log.test_log import FLUSH, FUA, MARK, Entry, encode
from tests.unit.recordings.test_recording import FACTS, LOG, SCENARIO, TEXTS

ENTRIES = [Entry(FUA, 2, 1, 5), *(Entry(MARK, text=text) for text in TEXTS), Entry(0, 4, 1, 6), Entry(FLUSH)]
SECOND = encode(ENTRIES)
DEVICE = bytes(1024) + bytes([5]) * 512 + bytes(512) + bytes([6]) * 512
DEVICE += bytes((JOURNAL_DISK_MIB << 20) - len(DEVICE))
_CHUNKS = [DEVICE[begin : begin + CHUNK_BYTES] for begin in range(0, len(DEVICE), CHUNK_BYTES)]
TWO = replace(
    FACTS, second_disk_mib=JOURNAL_DISK_MIB,
    logs=[*FACTS.logs, LogFacts(hashlib.sha256(SECOND).hexdigest(), len(SECOND), len(ENTRIES))],
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, log in (("log-a.zst", LOG), ("log-b.zst", SECOND)):
        (tmp_path / name).write_bytes(zstandard.ZstdCompressor().compress(log + bytes(4096)))
    (tmp_path / "facts.json").write_text(json.dumps(asdict(TWO)))
    return tmp_path


def test_the_journal_of_a_larger_disk_is_at_its_end_too(folder: Path) -> None:
    (folder / "facts.json").write_text(json.dumps(asdict(replace(TWO, disk_mib=300))))
    loaded = load(folder)
    assert loaded
    with loaded.open() as logs:
        assert (0, (300 - JOURNAL_DISK_MIB) << 20) == logs.file.device_begins_bytes
        assert ((300 - JOURNAL_DISK_MIB) << 20, JOURNAL_DISK_MIB << 20) == logs.file.devices_bytes


def test_of_recordings_from_before_facts_said_it_the_second_disk_is_that_of_a_journal(folder: Path) -> None:
    known = asdict(TWO)
    del known["second_disk_mib"]
    (folder / "facts.json").write_text(json.dumps(known))
    loaded = load(folder)
    assert loaded
    assert (DISK_MIB - JOURNAL_DISK_MIB, JOURNAL_DISK_MIB) == loaded.facts.disks_mib


@pytest.mark.parametrize("second_mib", [0, -8, DISK_MIB, 3 * DISK_MIB])
def test_a_second_disk_of_no_possible_size_names_the_file(folder: Path, second_mib: int) -> None:
    (folder / "facts.json").write_text(json.dumps(asdict(replace(TWO, second_disk_mib=second_mib))))
    with pytest.raises(RecordingError, match=r"facts\.json is damaged: it lists 2 logs, and disks of"):
        load(folder)


def test_both_logs_come_back_in_one_file_and_nothing_is_left_behind(folder: Path) -> None:
    loaded = load(folder)
    assert Recording(folder, TWO) == loaded
    with loaded.open() as logs:
        _, second = logs.all
        assert (logs.first, second) == tuple(logs.pair.sides[disk].log for disk in DiskLetter)
        assert [len(LOG), len(SECOND)] == [log.end_bytes for log in logs.all]
        assert bytes([5]) * 512 == bytes(second.payload(0))
        with logs.file.path.open("rb") as file:
            file.seek(second.begin_bytes + int(second.payload_offset_bytes[0]))
            assert bytes([5]) * 512 == file.read(512)
        assert [(DISK_MIB - JOURNAL_DISK_MIB) << 20, JOURNAL_DISK_MIB << 20] == [log.device_bytes for log in logs.all]
    assert ["facts.json", "log-a.zst", "log-b.zst"] == sorted(found.name for found in folder.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"x" * 100,
        lambda archive: archive[: len(archive) // 2],
        lambda _: zstandard.ZstdCompressor().compress(SECOND[:-512]),
        lambda _: zstandard.ZstdCompressor().compress(SECOND.replace(bytes([5]), bytes([8]))),
    ],
    ids=["garbage", "half", "shorter log", "another payload"],
)
def test_a_damaged_second_log_names_its_file(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / "log-b.zst"
    path.write_bytes(damage(path.read_bytes()))
    loaded = load(folder)
    assert loaded
    with pytest.raises(RecordingError, match=r"log-b\.zst is damaged: .*; remove the folder"), loaded.unpack():
        pytest.fail("given out")


def test_facts_of_two_logs_without_the_second_name_it(folder: Path) -> None:
    (folder / "log-b.zst").unlink()
    with pytest.raises(RecordingError, match=r"no log-b\.zst"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"requests": {"flushes": 2}}, "the log holds 1 flushes, the disk saw 2"),
        ({"device_digest": hashlib.sha256(b"").hexdigest()}, "replaying its 7 entries does not give the device"),
    ],
)
def test_each_log_is_held_against_its_own_disk(tmp_path: Path, changes: dict[str, object], reason: str | None) -> None:
    told = {"requests": {"flushes": 1}, "device_digest": disk_digest(_CHUNKS)} | changes
    (tmp_path / "log").write_bytes(SECOND)
    with WriteLog.open(tmp_path / "log", device_bytes=JOURNAL_DISK_MIB << 20) as log:
        if reason is None:
            soundness._require_same_disk("it is void", told, log)
            return
        with pytest.raises(RecordingError, match=f"it is void: {reason}"):
            soundness._require_same_disk("it is void", told, log)


def test_a_mark_that_only_one_log_has_voids_the_recording(folder: Path) -> None:
    short = encode([*ENTRIES[:2], *ENTRIES[3:]])
    (folder / "log-b.zst").write_bytes(zstandard.ZstdCompressor().compress(short))
    facts = replace(TWO, logs=[TWO.logs[0], LogFacts(hashlib.sha256(short).hexdigest(), len(short), 5)])
    with (
        Recording(folder, facts).open() as logs,
        pytest.raises(LogError, match="3 marks, but 4 in the log of the other disk; the first 1 are the same"),
    ):
        soundness.require_sound(SCENARIO, {"root_reads": 0, "rounds": []}, logs)
