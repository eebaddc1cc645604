"""Recordings: each defect voids one, and a damaged one is reported with its file and never used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from rig.contract.errors import RecordingError
from rig.contract.geometry import CHUNK_BYTES, disk_digest
from rig.contract.results import LogFacts, RecordingFacts
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.faults import Logs, WriteLog
from rig.faults.log.account import Account
from rig.filesystems.ext import DISK_MIB
from rig.recordings import archive, soundness
from rig.recordings.archive import RECORDING_BYTES, Recording, load
from rig.store import Run
from tests.unit.faults.log.test_log import FLUSH, FUA, MARK, Entry, encode

SCENARIO = Scenario(
    "sqlite", "ext4", {"synchronous": "full"}, "powercut", {"page_size": "4096"}, workload=WorkloadSpec(1)
)
TEXTS = ("setup-1", "begin-1-2", "ack-1-3", "end-4")
ENTRIES = [
    Entry(0, 2, 2, 7),
    Entry(FLUSH),
    *(Entry(MARK, text=text) for text in TEXTS[:2]),
    Entry(FUA, 3, 1, 9),
    *(Entry(MARK, text=text) for text in TEXTS[2:]),
    Entry(FLUSH),
]
DEVICE = bytes(1024) + bytes([7]) * 512 + bytes([9]) * 512 + bytes((DISK_MIB << 20) - 2048)


@pytest.fixture(scope="module")
def device_digest() -> str:
    return disk_digest(DEVICE[begin : begin + CHUNK_BYTES] for begin in range(0, len(DEVICE), CHUNK_BYTES))


def report_of(sound_digest: str, **changes: Any) -> dict[str, Any]:
    """Return the guest's report on a sound recording."""
    settings = {"synchronous": "full", "page_size": "4096", "version": "3"}
    sound = {"root_reads": 0, "requests": {"flushes": 2}, "device_digest": sound_digest, "settings": settings}
    sound["filesystem"] = {"format": "Block size: 4096", "mount": "rw,barrier,data=ordered"}
    return sound | changes


def require_sound(path: Path, facts: dict[str, Any], entries: list[Entry], scenario: Scenario = SCENARIO) -> None:
    path.write_bytes(encode(entries))
    with WriteLog.open(path, device_bytes=DISK_MIB << 20) as log:
        soundness.require_sound(scenario, facts, Logs(log))


def test_a_sound_recording_is_kept(tmp_path: Path, device_digest: str) -> None:
    require_sound(tmp_path / "log", report_of(device_digest), ENTRIES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"root_reads": 1}, "1 reads went to the host's disk"),
        ({"requests": {"flushes": 3}}, "the log holds 2 flushes, the disk saw 3"),
        ({"requests": {"flushes": 1}}, "the log holds 2 flushes, the disk saw 1"),
        ({"device_digest": hashlib.sha256(b"").hexdigest()}, "replaying its 8 entries does not give the device"),
        ({"settings": {"synchronous": "off", "page_size": "4096"}}, "synchronous was set to full and reads back off"),
        ({"settings": {"synchronous": "full", "page_size": "512"}}, "page_size was set to 4096 and reads back 512"),
        (
            {"filesystem": {"mount": "rw,nobarrier,data=ordered"}},
            "it should be mounted with barrier, and the kernel lists",
        ),
        ({"settings": {"page_size": "4096"}}, "synchronous was set to full and reads back None"),
    ],
)
def test_what_the_guest_says_against_a_recording_voids_it(
    tmp_path: Path, device_digest: str, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RecordingError, match=f"sqlite-ext4-full_powercut is void: {reason}"):
        require_sound(tmp_path / "log", report_of(device_digest, **changes), ENTRIES)


@pytest.mark.parametrize(("seen", "is_sound"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_disk_may_carry_out_flushes_in_flight_together_as_one(
    tmp_path: Path, device_digest: str, seen: int, is_sound: bool
) -> None:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log", device_bytes=DISK_MIB << 20) as log:
        # Each entry is submitted after the one before it, and all complete at the end.
        log.account = Account(np.arange(log.entry_count), np.arange(log.entry_count) + log.entry_count)
        facts = report_of(device_digest, requests={"flushes": seen})
        with nullcontext() if is_sound else pytest.raises(RecordingError, match=f"the disk saw {seen}"):
            soundness.require_sound(SCENARIO, facts, Logs(log))


def test_a_payload_that_the_log_has_wrong_voids_it(tmp_path: Path, device_digest: str) -> None:
    wrong = [replace(ENTRIES[0], fill=8), *ENTRIES[1:]]
    with pytest.raises(RecordingError, match="does not give the device"):
        require_sound(tmp_path / "log", report_of(device_digest), wrong)


def test_a_transaction_without_its_acknowledgement_voids_it(tmp_path: Path, device_digest: str) -> None:
    scenario = replace(SCENARIO, workload=WorkloadSpec(2))
    with pytest.raises(RecordingError, match="1 of 2 transactions acknowledged"):
        require_sound(tmp_path / "log", report_of(device_digest), ENTRIES, scenario)


def test_the_facts_say_how_long_transactions_took_and_what_reached_the_disk_meanwhile(tmp_path: Path) -> None:
    texts = ("setup-1", "begin-1-20", "ack-1-30", "begin-2-40", "ack-2-90", "end-99")
    setup, *marks, end = (Entry(MARK, text=text) for text in texts)
    inside = [marks[0], Entry(FUA, 3, 1, 9), Entry(FLUSH), marks[1], Entry(FUA, 4, 1, 9), *marks[2:], Entry(FLUSH)]
    path = tmp_path / "log"
    path.write_bytes(encode([Entry(FUA, 1, 1, 1), setup, *inside, end]))
    content = bytearray(DISK_MIB << 20)
    for sector, fill in ((1, 1), (3, 9), (4, 9)):
        content[sector * 512 : (sector + 1) * 512] = bytes([fill]) * 512
    digest = disk_digest(bytes(content[begin : begin + CHUNK_BYTES]) for begin in range(0, len(content), CHUNK_BYTES))
    facts = report_of(digest, kernel="6", user_bytes=8, syncs={}, live=[])
    with WriteLog.open(path, device_bytes=DISK_MIB << 20) as log:
        scenario = replace(SCENARIO, workload=WorkloadSpec(2))
        found = soundness.facts_of(scenario, soundness.Origin("t", "i", "q"), facts, Logs(log))
    assert [10, 50] == found.latencies_virtual_ns
    # The FUA write between the two transactions and the FLUSH after them are nobody's.
    assert (1, 1, 1024, 60) == (found.flush_count, found.fua_count, found.written_bytes, found.busy_virtual_ns)


def test_facts_from_before_latencies_have_none(folder: Path) -> None:
    known = asdict(FACTS)
    del known["latencies_virtual_ns"], known["fua_count"]
    (folder / "facts.json").write_text(json.dumps(known))
    loaded = load(folder)
    assert loaded
    assert ([], None) == (loaded.facts.latencies_virtual_ns, loaded.facts.fua_count)


LOG = encode(ENTRIES)
FACTS = RecordingFacts(
    key="k", disk_mib=DISK_MIB, logs=[LogFacts(hashlib.sha256(LOG).hexdigest(), len(LOG), len(ENTRIES))],
    template="t", image="i", qemu_version="7", kernel="6",
    engine_version="3", settings={"synchronous": "full"}, seed=1, transaction_count=1, busy_virtual_ns=1,
    span_virtual_ns=3, flush_count=0, written_bytes=512, user_bytes=8,
    syncs={}, live=[], clock=[], reproduced=None,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # As the guest sends it: a few sectors more than the log, with arbitrary content.
    archive = zstandard.ZstdCompressor().compress(LOG + bytes(4096))
    (tmp_path / "log-a.zst").write_bytes(archive)
    (tmp_path / "facts.json").write_text(json.dumps(asdict(FACTS)))
    return tmp_path


def test_a_recording_comes_back_as_it_was_stored_and_leaves_no_log_behind(folder: Path) -> None:
    loaded = load(folder)
    assert Recording(folder, FACTS) == loaded
    with loaded.unpack() as file:
        assert RECORDING_BYTES == file.path.stat().st_size
        with file.open() as logs:
            assert [(len(LOG), len(ENTRIES))] == [(log.end_bytes, log.entry_count) for log in logs.all]
    assert ["facts.json", "log-a.zst"] == sorted(found.name for found in folder.iterdir())


@pytest.mark.parametrize("disk_mib", [64, 300])
def test_the_logs_of_a_recording_are_those_of_a_disk_of_its_size(folder: Path, disk_mib: int) -> None:
    (folder / "facts.json").write_text(json.dumps(asdict(replace(FACTS, disk_mib=disk_mib))))
    loaded = load(folder)
    assert loaded
    with loaded.open() as logs:
        assert [disk_mib << 20] == [log.device_bytes for log in logs.all]


def test_facts_from_before_they_said_the_size_are_those_of_a_disk_of_64_mib(folder: Path) -> None:
    known = asdict(replace(FACTS, disk_mib=300))
    del known["disk_mib"]
    (folder / "facts.json").write_text(json.dumps(known))
    recording = load(folder)
    assert recording
    assert 64 == recording.facts.disk_mib


@pytest.mark.parametrize("disk_mib", [0, 8, -64, "64", None, 1.5, 1 << 40])
def test_facts_with_a_size_that_no_disk_has_name_the_file(folder: Path, disk_mib: object) -> None:
    (folder / "facts.json").write_text(json.dumps(asdict(FACTS) | {"disk_mib": disk_mib}))
    with pytest.raises(RecordingError, match=r"facts\.json is damaged: .*disk"):
        load(folder)


def test_a_run_knows_whether_one_of_its_recordings_was_made_twice(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"profile": "quick"})
    assert not run.has_repeated()
    stored = run.folder / "recordings" / "once"
    stored.mkdir(parents=True)
    archive.save(stored, [LOG], FACTS)
    assert not run.has_repeated()
    for reproduced in (True, False):
        (stored / "facts.json").write_text(json.dumps(asdict(replace(FACTS, reproduced=reproduced))))
        assert run.has_repeated()
    (stored / "facts.json").write_text("{")
    assert not run.has_repeated(), "a damaged recording is made again"


def test_a_folder_without_facts_holds_no_recording(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert load(tmp_path / "not there") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda _: "",
        lambda _: "[]",
        lambda _: "{}",
        lambda text: text.replace('"seed"', '"sead"'),
    ],
    ids=["cut off", "empty", "a list", "no fields", "another field"],
)
def test_damaged_facts_name_the_file(folder: Path, damage: Callable[[str], str]) -> None:
    path = folder / "facts.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordingError, match=r"facts\.json is damaged: .*; remove the folder"):
        load(folder)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"null"])
def test_facts_that_are_no_text_or_no_object_name_the_file(folder: Path, content: bytes) -> None:
    (folder / "facts.json").write_bytes(content)
    with pytest.raises(RecordingError, match=r"facts\.json is damaged"):
        load(folder)


def test_facts_without_a_log_name_the_log(folder: Path) -> None:
    (folder / "log-a.zst").unlink()
    with pytest.raises(RecordingError, match=r"no log-a\.zst"):
        load(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"x" * 100,
        lambda archive: archive[: len(archive) // 2],
        lambda archive: archive[:-1],
        lambda _: zstandard.ZstdCompressor().compress(LOG[:-512]),
        lambda _: zstandard.ZstdCompressor().compress(LOG.replace(bytes([7]), bytes([8]))),
    ],
    ids=["empty", "garbage", "half", "one byte short", "shorter log", "another payload"],
)
def test_a_damaged_log_names_the_file_and_is_not_given_out(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / "log-a.zst"
    path.write_bytes(damage(path.read_bytes()))
    loaded = load(folder)
    assert loaded
    with pytest.raises(RecordingError, match=r"log-a\.zst is damaged: .*; remove the folder"), loaded.unpack():
        pytest.fail("given out")
    assert not (folder / "log").exists()


def test_a_log_that_does_not_fit_the_disk_of_a_clone_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RECORDING_BYTES", len(LOG))
    loaded = load(folder)
    assert loaded
    with pytest.raises(RecordingError, match="does not fit the recording disk"), loaded.unpack():
        pytest.fail("given out")
