"""Recordings of recoveries: a log that begins with the recovered disk, exact to the byte, and is kept intact."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rig.campaign.recover import keep_recoveries
from rig.campaign.session import Recovered
from rig.contract import geometry
from rig.contract.errors import RecordingError
from rig.contract.findings import Finding, FindingKind
from rig.faults import Address, Fault, Logs, WriteLog
from rig.faults.log.submissions import attach, one_by_one
from rig.filesystems.ext import DISK_MIB
from rig.guest import recovery
from rig.planning import matrix
from rig.planning.recoverycuts import is_inside
from rig.recordings.recoveries import OpenRecovery, Recoveries, Recovery, content_before, self_contained
from tests.unit.faults.disks import (
    DISK_SECTORS,
    SECTOR,
    Content,
    Disk,
    Op,
    content_of,
    everything,
    rebuild,
    rebuild_device,
    run_of,
    some_ops,
)
from tests.unit.faults.requests import Requests, some_requests

DEVICE_BYTES = DISK_SECTORS * SECTOR


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recovery")


def reachable_from(start: Content, disk: Disk) -> set[Content]:
    """Every content that a cut can leave if a disk that held `start` went through this run."""
    found = set()
    for moment in disk.moments:
        possible = {start}
        for op, is_durable in moment.writes:
            sectors = op.sectors()
            landed = {tuple(sectors.get(sector, old) for sector, old in enumerate(content)) for content in possible}
            possible = landed if is_durable else possible | landed
        found |= possible
    return found


def overlaid(start: np.ndarray[tuple[int], np.dtype[np.uint8]], log: WriteLog, entries: list[int]) -> None:
    for entry in entries:
        begin = int(log.offset_bytes[entry])
        start[begin : begin + int(log.payload_bytes[entry])] = np.frombuffer(log.payload(entry), dtype=np.uint8)


@settings(max_examples=60)
@given(ops=some_ops(8, 0, 3, writes_max=4), again=some_ops(8, 0, 3, writes_max=3), data=st.data())
def test_a_cut_of_a_recovery_leaves_what_the_first_cut_left_and_then_what_landed_of_the_recovery(
    place: Path, ops: list[Op], again: list[Op], data: st.DataObject
) -> None:
    run_of(place / "first", ops)
    recovering = run_of(place / "raw", again)
    with WriteLog.open(place / "first") as log, WriteLog.open(place / "raw") as raw:
        state = data.draw(st.sampled_from(everything(Fault.POWERCUT, log).states))
        start = rebuild_device(log, state)
        (place / "composed").write_bytes(self_contained(state.id, state, log, raw.path.read_bytes(), DEVICE_BYTES))
        with WriteLog.open(place / "composed") as composed:
            made = OpenRecovery(Logs(composed), state.id)
            assert content_of(start) == rebuild(composed, made.start())
            # The recording's self-check: the order in the model is the log's.
            whole = content_of(composed.replay(composed.entry_count, DEVICE_BYTES))
            final = {sector: value for op in recovering.order for sector, value in op.sectors().items()}
            assume(whole == tuple(final.get(sector, old) for sector, old in enumerate(content_of(start))))
            shift = made.first_entry + 1
            assert raw.flags.tolist() == composed.flags[shift:].tolist()
            states = everything(Fault.POWERCUT, composed, made.first_entry).states
            legal = reachable_from(content_of(start), recovering)
            assert {rebuild(composed, one) for one in states} <= legal
            for one in states:
                # Both logs on one disk: the first cut's, and then the raw recovery's own entries.
                device = start.copy()
                durable = np.flatnonzero(raw.payload_bytes[: one.base_end - shift]).tolist()
                overlaid(device, raw, [*durable, *(int(entry) - shift for entry in one.pieces(composed)[:, 0])])
                assert content_of(device) == rebuild(composed, one)
                address = Address.parse(str(Address(state.id).then(one.id)))
                assert (state.id, one) == (address.before, made.logs.parse(address.content))


def test_a_recovery_of_zeros_over_something_has_a_content_of_its_own(place: Path) -> None:
    run_of(place / "first", [Op("fua", 3, 1, 2)])
    run_of(place / "raw", [Op("write", 3, 1, 0), Op("flush-begin"), Op("flush-end")])
    with WriteLog.open(place / "first") as log, WriteLog.open(place / "raw") as raw:
        state = everything(Fault.POWERCUT, log).states[-1]
        assert any(rebuild(log, state))
        (place / "composed").write_bytes(self_contained(state.id, state, log, raw.path.read_bytes(), DEVICE_BYTES))
    with WriteLog.open(place / "composed") as composed:
        first_entry = OpenRecovery(Logs(composed), state.id).first_entry
        contents = {rebuild(composed, one) for one in everything(Fault.POWERCUT, composed, first_entry).states}
    assert 2 == len(contents)
    assert (0,) * DISK_SECTORS in contents


def test_a_recovery_is_cut_amid_its_work_from_its_first_write_to_a_file_to_just_before_its_last_write(
    place: Path,
) -> None:
    run_of(place / "first", [])
    flush = [Op("flush-begin"), Op("flush-end")]
    amid = [Op("write", 9, 1, 1), Op("write", 1, 1, 1)]
    ops = [Op("write", 0, 1, 1), *flush, *amid, *flush, Op("write", 2, 1, 1), *flush]
    run_of(place / "raw", ops)
    with WriteLog.open(place / "first") as log, WriteLog.open(place / "raw") as raw:
        state = everything(Fault.POWERCUT, log).states[0]
        (place / "composed").write_bytes(self_contained(state.id, state, log, raw.path.read_bytes(), DEVICE_BYTES))
    with WriteLog.open(place / "composed") as composed:
        made = OpenRecovery(Logs(composed), state.id)
        inside = {
            rebuild(composed, one)
            for one in everything(Fault.POWERCUT, composed, made.first_entry).states
            if is_inside(one, made, Recovery("", ((8 * SECTOR, 2 * SECTOR),)))
        }
        landed = ({0: 33, 9: 33}, {0: 33, 9: 33, 1: 33})
        expected = {tuple(sectors.get(sector, 0) for sector in range(DISK_SECTORS)) for sectors in landed}
        assert expected == inside


def kept_log(folder: Path) -> tuple[Recoveries, str, bytes]:
    """A recovery of a disk of full size, kept, its state's id and its log."""
    folder.mkdir(parents=True, exist_ok=True)
    run_of(folder / "first", [Op("fua", 3, 1, 2)])
    run_of(folder / "raw", [Op("write", 3, 1, 1), Op("flush-begin"), Op("flush-end")])
    with WriteLog.open(folder / "first") as log, WriteLog.open(folder / "raw") as raw:
        state = everything(Fault.POWERCUT, log).states[-1]
        data = self_contained(state.id, state, log, raw.path.read_bytes(), DISK_MIB << 20)
    (folder / "composed").write_bytes(data)
    with WriteLog.open(folder / "composed") as composed:
        disk = composed.replay(composed.entry_count, DISK_MIB << 20)
    kept = Recoveries(folder / "recoveries", DISK_MIB)
    kept.save(state.id, data, geometry.disk_digest(row.tobytes() for row in disk.reshape(-1, geometry.CHUNK_BYTES)))
    return kept, state.id, data


def archive(folder: Path) -> Path:
    (path,) = (folder / "recoveries").glob("*.zst")
    return path


def test_a_recovery_is_given_back_as_it_was_kept_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    kept, text, data = kept_log(tmp_path)
    with kept.open(text) as made:
        assert data == made.log.bytes_at(0, len(data))
        assert len(data) == made.log.end_bytes
    assert [archive(tmp_path)] == list((tmp_path / "recoveries").iterdir())
    kept.remove(text)
    assert [] == list((tmp_path / "recoveries").iterdir())


def test_a_recovery_whose_log_does_not_give_the_disk_is_void_and_not_kept(tmp_path: Path) -> None:
    kept, text, data = kept_log(tmp_path)
    with pytest.raises(RecordingError, match="void"):
        kept.save(text, data, "0" * 64)
    assert [] == list((tmp_path / "recoveries").iterdir())


def unkept_log(folder: Path) -> tuple[Recoveries, str, str, bytes]:
    """Return an empty folder of recoveries, and of a recovery that it can keep the address, disk digest and raw log."""
    kept, text, _ = kept_log(folder)
    with kept.open(text) as made:
        disk = made.log.replay(made.log.entry_count, DISK_MIB << 20)
    kept.remove(text)
    digest = geometry.disk_digest(row.tobytes() for row in disk.reshape(-1, geometry.CHUNK_BYTES))
    return kept, text, digest, (folder / "raw").read_bytes()


def test_a_void_recovery_is_left_out_and_costs_the_others_nothing(tmp_path: Path) -> None:
    kept, text, digest, raw = unkept_log(tmp_path)
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_recoverycut"])
    finding = Finding(FindingKind.PREFIX, recovered=1)
    with WriteLog.open(tmp_path / "first") as log:
        state = everything(Fault.POWERCUT, log).states[-1]
        both = [Recovered(finding, raw, b"", each, ()) for each in ("0" * 64, digest)]
        # Of two recoveries under two names the first is void.
        recoveries = keep_recoveries(scenario, kept, ["e1.f0", text], [state] * 2, both, log, 2)
        assert [text] == [recovery.state for recovery in recoveries]
        most = [replace(each, digest="0" * 64) for each in both]
        with pytest.raises(RecordingError, match="void"):
            keep_recoveries(scenario, kept, ["e1.f0", "e2.f0"], [state] * 2, most, log, 2)
    assert [archive(tmp_path)] == list((tmp_path / "recoveries").iterdir())


@pytest.mark.parametrize(("whole", "wanted"), [(0, [0]), (1, [0, 1]), (2, [0, 2]), (None, [0])])
def test_if_all_that_are_kept_are_damaged_a_whole_database_is_kept_too(
    tmp_path: Path, whole: int | None, wanted: list[int]
) -> None:
    kept, text, digest, raw = unkept_log(tmp_path)
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_recoverycut"])
    findings = [Finding(FindingKind.CORRUPT, detail="page 3") for _ in range(3)]
    if whole is not None:
        findings[whole] = Finding(FindingKind.PREFIX, recovered=1)
    with WriteLog.open(tmp_path / "first") as log:
        state = everything(Fault.POWERCUT, log).states[-1]
        names = [text, f"{text}/e1.f0", f"{text}/e2.f0"]
        recovered = [Recovered(finding, raw, b"", digest, ()) for finding in findings]
        chosen = keep_recoveries(scenario, kept, names, [state] * 3, recovered, log, 1)
    assert [names[number] for number in wanted] == [recovery.state for recovery in chosen]
    # The others have left no file.
    assert len(wanted) == len(list((tmp_path / "recoveries").iterdir()))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(disk=some_requests(4), flip=st.booleans())
def test_the_block_trace_of_a_recovery_leaves_no_order_open_and_must_agree_with_its_log(
    tmp_path: Path,
    disk: Requests,
    flip: bool,
) -> None:
    run_of(tmp_path / "first", [Op("fua", 3, 1, 2), Op("write", 0, 2, 3), Op("flush-begin"), Op("flush-end")])
    disk.end(tmp_path / "raw")
    with WriteLog.open(tmp_path / "first") as log:
        state = everything(Fault.POWERCUT, log).states[-1]
        data = self_contained(state.id, state, log, (tmp_path / "raw").read_bytes(), DISK_MIB << 20)
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    trace = bytes(disk.records)
    (tmp_path / "composed").write_bytes(data)
    with WriteLog.open(tmp_path / "composed") as composed:
        attach(one_by_one(content_before(data)) + trace, composed)
        whole = composed.replay(composed.entry_count, DISK_MIB << 20)
    digest = geometry.disk_digest(row.tobytes() for row in whole.reshape(-1, geometry.CHUNK_BYTES))
    if flip and trace:
        # The sector of the last record.
        wrong = trace[:-32] + bytes([trace[-32] ^ 1]) + trace[-31:]
        with pytest.raises(RecordingError):
            kept.save(state.id, data, digest, wrong)
        assert [] == list((tmp_path / "recoveries").iterdir())
        return
    kept.save(state.id, data, digest, trace)
    with kept.open(state.id) as made:
        assert (made.log.account is not None) == bool(trace)
        assert not any(epoch.open_sectors or epoch.ambiguous for epoch in made.logs.epochs)
        with made.logs.file.open() as again:
            assert made.logs.epochs == again.epochs
    kept.remove(state.id)


def test_a_missing_a_damaged_or_another_recovery_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    kept, text, data = kept_log(tmp_path)
    path = archive(tmp_path)
    whole = path.read_bytes()
    # The frame's header, its blocks and its checksum.
    for offset, bit in product(range(len(whole)), (0, 5)):
        broken = bytearray(whole)
        broken[offset] ^= 1 << bit
        path.write_bytes(broken)
        try:
            with kept.open(text) as made:
                # A flag that does not affect the content.
                assert data == made.log.bytes_at(0, len(data))
        except RecordingError as error:
            assert str(path) in str(error)  # noqa: PT017 - a harmless bit is no error
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordingError, match=path.name), kept.open(text):
            pass
    path.write_bytes(whole)
    with kept.open(text):
        pass
    # The recovery of another state, under this one's name.
    path.rename(path.with_name(kept._path("e1.f0").name))
    with pytest.raises(RecordingError, match="not the recovery from"), kept.open("e1.f0"):
        pass
    with pytest.raises(RecordingError, match=path.name), kept.open(text):
        pass


def test_the_index_says_what_there_is_or_that_it_is_damaged(tmp_path: Path) -> None:
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    assert kept.index() is None
    rows = [Recovery("e7.f0", ((4096, 8192), (65536, 512))), Recovery("e7.f0~e9.f1", ())]
    kept.write_index(rows)
    assert rows == kept.index()
    path = tmp_path / "recoveries" / "index.json"
    wrong = ["", "{}x", "[1]", '[{"state": "e1.f0"}]', '[{"state": "e1.f0~", "files": []}]']
    for text in (*wrong, json.dumps([{"state": "e1", "files": [[1]]}])):
        path.write_text(text)
        with pytest.raises(RecordingError, match=r"index\.json is damaged"):
            kept.index()


def test_the_digest_of_a_disk_skips_zeros_and_tells_where_the_rest_stands() -> None:
    zeros, ones = bytes(geometry.CHUNK_BYTES), b"\1" * geometry.CHUNK_BYTES
    contents = ([zeros, zeros], [zeros, ones], [ones, zeros], [ones, ones])
    assert 4 == len({geometry.disk_digest(chunks) for chunks in contents})
    assert geometry.disk_digest([zeros]) == geometry.disk_digest([])


@settings(max_examples=50)
@given(ops=some_ops(8, 0, 3, writes_max=4))
def test_the_guest_reads_from_a_log_where_it_was_written(ops: list[Op], place: Path) -> None:
    run_of(place / "written", ops)
    with WriteLog.open(place / "written") as log:
        there = log.payload_bytes > 0
        expected = list(zip(log.offset_bytes[there].tolist(), log.payload_bytes[there].tolist(), strict=True))
    assert expected == list(recovery.written_ranges((place / "written").read_bytes()))
