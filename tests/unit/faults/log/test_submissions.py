"""Submissions: the block trace's account of a log, and the crash states that only it can prove."""

from __future__ import annotations

import struct
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from rig.faults import Fault, LogError, Logs, WriteLog, epochs, parse_state, plan
from rig.faults.choosing.agenda import LISTED_MEMBERS_MAX
from rig.faults.legality.legality import Checker, Rule
from rig.faults.log.submissions import RECORD, account_of, attach, joinable_flush_count
from tests.unit.faults.disks import (
    DISK_SECTORS,
    SECTOR,
    Content,
    Op,
    everything,
    marks_claimed,
    rebuild,
    rebuild_device,
)
from tests.unit.faults.legality.test_legality import device
from tests.unit.faults.reachable import Kind, is_void, tables
from tests.unit.faults.requests import Requests, some_requests


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("submissions") / "log"


@settings(max_examples=300)
@given(disk=some_requests(4))
def test_a_power_cut_makes_every_reachable_content_and_no_other_and_claims_its_marks(
    place: Path, disk: Requests
) -> None:
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        # No recording of such a disk is void, and of no sector it is open what was written last.
        assert not is_void(disk, log)
        assert not any(epoch.open_sectors or epoch.ambiguous for epoch in epochs(log))
        states = everything(Fault.POWERCUT, log).states
        event(f"ahead: {any(state.ahead for state in states)}")
        made, reached = {rebuild(log, state): marks_claimed(log, state) for state in states}, disk.contents()
        if disk.has_older_plain_write():
            assert all(seen <= reached.get(content, -1) for content, seen in made.items())
        else:
            assert made == reached
        checker = Checker(log, DISK_SECTORS * SECTOR)
        split = epochs(log)
        for state in states:
            assert parse_state(state.id, log, split).ahead == state.ahead
            assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, Rule.WHOLE)), state.id


def test_of_every_kind_a_power_cut_makes_all_that_is_reachable(place: Path) -> None:
    plain, with_older, void_count = tables(150, 1, place)
    assert all(plain.reached[kind] >= 10 for kind in Kind)
    assert plain.reached == plain.made
    assert 0 == plain.wrong_count + with_older.wrong_count
    # What only the block trace proves, the log alone does not give.
    assert 0 == sum(plain.by_log_alone[kind] for kind in Kind if kind > Kind.OLDER)
    assert 0 == void_count


@settings(max_examples=150)
@given(disk=some_requests(4, writes_max=4))
def test_where_only_a_sector_is_atomic_every_sector_of_a_write_lands_by_itself(place: Path, disk: Requests) -> None:
    disk.end(place)
    assume(not disk.has_older_plain_write())
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        log.split(SECTOR)
        assert not is_void(disk, log)
        states = everything(Fault.POWERCUT, log).states
        made = {rebuild(log, state): marks_claimed(log, state) for state in states}
        reached: dict[Content, int] = {}
        for moment in disk.moments:
            for parts in product(*moment.versions(1)):
                content = tuple(value for part in parts for value in part)
                reached[content] = max(moment.marks_seen, reached.get(content, 0))
        assert made == reached
        checker = Checker(log, DISK_SECTORS * SECTOR)
        split = epochs(log)
        for state in states:
            assert parse_state(state.id, log, split) == state
            assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, Rule.WHOLE)), state.id


@pytest.mark.parametrize("fault", [Fault.OSCRASH, Fault.PLP])
@given(disk=some_requests(4))
def test_a_disk_that_finishes_what_it_began_leaves_no_part_of_it(place: Path, disk: Requests, fault: Fault) -> None:
    disk.end(place)
    # What proves the order of one part of a write to a FUA write is not applied to the parts before it.
    assume(not disk.has_older_plain_write())
    found = []
    for unit_bytes in (0, SECTOR):
        with WriteLog.open(place) as log:
            attach(bytes(disk.records), log)
            if unit_bytes:
                log.split(unit_bytes)
            checker, states = Checker(log, DISK_SECTORS * SECTOR), everything(fault, log).states
            found.append({rebuild(log, state): marks_claimed(log, state) for state in states})
            assert fault.rule
            for state in states:
                assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, fault.rule)), state.id
    assert found[0] == found[1]


@settings(max_examples=100)
@given(disk=some_requests(3, writes_max=4))
def test_the_checker_calls_legal_just_what_a_cut_before_that_entry_can_leave(place: Path, disk: Requests) -> None:
    disk.end(place)
    assume(not disk.has_older_plain_write())
    with WriteLog.open(place) as log:
        headers = log.header_offset_bytes.tolist()
        attach(bytes(disk.records), log)
        # Where a FLUSH overtook another, entries have new numbers.
        number = {header: entry for entry, header in enumerate(log.header_offset_bytes.tolist())}
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for entry, moment in ((number[headers[before]], moment) for before, moment in disk.before.items()):
            for content in disk.contents():
                expected = "legal" if content in moment.whole_contents() else "illegal"
                assert expected == checker.check(device(content), entry, Rule.WHOLE).legality


@pytest.mark.parametrize("second", [1, 2, None])
def test_two_flushes_in_flight_that_took_writes_of_one_place_void_a_recording(place: Path, second: int | None) -> None:
    """Only the bytes tell which of the two the log has first; a FLUSH of another place would tell."""
    disk = Requests()
    flushes = [Op("flush", 0, 0, 1), Op("flush", 0, 0, 2)]
    for flush, sector in zip(flushes, (1, second), strict=True):
        if sector is not None:
            write = Op("write", sector, 1, 10 + flush.fill)
            disk.submit(write)
            disk.complete(write)
        assert (second == 1 and flush is flushes[1]) is disk.has_alike(flush)
        disk.submit(flush)
    disk.complete(flushes[1])
    disk.end(place)
    with WriteLog.open(place) as log:
        if second == 1:
            with pytest.raises(LogError, match="2 FLUSHes in flight each took a write of 512 bytes at 512: which"):
                attach(bytes(disk.records), log)
        else:
            attach(bytes(disk.records), log)
            assert log.account


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_two_flushes_in_flight_that_took_nothing_the_one_that_makes_more_durable_counts_as_the_first(
    place: Path, order: tuple[int, ...]
) -> None:
    """A third took the write between them. Whichever completes first, no state is made that no cut can leave."""
    disk = Requests()
    flushes = [Op("flush", sector, 0, fill) for fill, sector in enumerate((0, 3, 0), 1)]
    for flush, sector in zip(flushes, (None, 1, None), strict=True):
        if sector is not None:
            write = Op("write", sector, 1, 10)
            disk.submit(write)
            disk.complete(write)
        disk.submit(flush)
    for rank in order:
        disk.complete(flushes[rank])
        disk.mark()
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        made = {rebuild(log, state): marks_claimed(log, state) for state in everything(Fault.POWERCUT, log).states}
    reached = disk.contents()
    assert made
    assert all(seen <= reached.get(content, -1) for content, seen in made.items())
    # That the write may be missing after a mark is known if the third one is not the first, and left out otherwise.
    assert (order[:1] == (0,)) is (made != reached)


@settings(max_examples=60)
@given(disk=some_requests(4, writes_max=4))
def test_whatever_else_an_honest_disk_does_is_legal(place: Path, disk: Requests) -> None:
    disk.end(place)
    rules = {Fault.TORN: Rule.TORN, Fault.SHORN: Rule.SHORN, Fault.DISCARD: Rule.DISCARDS, Fault.PLP: Rule.ORDERED}
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for fault, rule in rules.items():
            split = epochs(log)
            for state in plan(fault, Logs(log), first_entry=-1, states_max=300, seed=1).states:
                assert parse_state(state.id, log, split) == state
                assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, rule)), state.id


@given(disk=some_requests(4), data=st.data())
def test_records_that_disagree_with_the_log_are_refused(place: Path, disk: Requests, data: st.DataObject) -> None:
    disk.end(place)
    count = len(disk.records) // 48
    assume(count > 1)
    rank = data.draw(st.integers(0, count - 1))
    with WriteLog.open(place) as log:
        lost = bytes(disk.records[: 48 * rank] + disk.records[48 * (rank + 1) :])
        with pytest.raises(LogError):
            account_of(lost, log)
        with pytest.raises(LogError):
            account_of(bytes(disk.records[:-1]), log)


@given(disk=some_requests(4, writes_max=3), noise=st.binary(max_size=200), at=st.integers(0, 500))
def test_a_damaged_trace_is_refused_or_still_agrees(place: Path, disk: Requests, noise: bytes, at: int) -> None:
    disk.end(place)
    records = bytearray(disk.records)
    records[at : at + len(noise)] = noise
    with WriteLog.open(place) as log:
        try:
            account = account_of(bytes(records), log)
        except LogError:
            return
        writes = account.completed >= 0
        assert (account.submitted[writes] < account.completed[writes]).all()


def test_what_a_flush_made_durable_stays_though_the_log_has_it_after_that(place: Path) -> None:
    """A sync and the commit of a journal flush together; the later flush completes first, then the commit's block."""
    disk, data, block, commit = Requests(), Op("write", 0, 1, 1), Op("write", 1, 1, 2), Op("fua", 2, 1, 3)
    sync, preflush = Op("flush"), Op("flush", 2)
    disk.submit(data)
    disk.complete(data)
    disk.submit(sync)
    for op in (block, preflush, commit):
        disk.submit(op)
        disk.complete(op)
    disk.complete(sync)
    disk.end(place)
    with WriteLog.open(place) as log:
        assert ["write", "flush", "fua", "write", "flush", "mark"] == [op.kind for op in disk.log]
        attach(bytes(disk.records), log)
        assert [0, 512, 1024, 1024, 0, 0] == log.offset_bytes.tolist()
        states = everything(Fault.POWERCUT, log).states
        assert disk.contents() == {rebuild(log, state): marks_claimed(log, state) for state in states}


def test_a_plain_write_in_flight_may_have_landed_before_a_fua_write_completes(place: Path) -> None:
    disk, slow, fua = Requests(), Op("write", 1, 1, 1), Op("fua", 0, 1, 2)
    disk.submit(slow)
    disk.submit(fua)
    disk.complete(fua)
    disk.end(place)
    with WriteLog.open(place) as log:
        without = {state.id for state in everything(Fault.POWERCUT, log).states}
        attach(bytes(disk.records), log)
        assert {"tail.f0.a1"} == {state.id for state in everything(Fault.POWERCUT, log).states} - without


@pytest.mark.parametrize("count", [LISTED_MEMBERS_MAX, LISTED_MEMBERS_MAX + 1])
def test_a_whole_long_batch_that_may_have_landed_ahead_of_a_fua_write_has_ids(place: Path, count: int) -> None:
    disk = Requests()
    batch = [Op("write", sector, 1, sector) for sector in range(1, count + 1)]
    for op in (Op("flush"), *batch, Op("fua", 0, 1, 9), Op("flush", 1)):
        disk.submit(op)
        disk.complete(op)
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        states = list(plan(Fault.POWERCUT, Logs(log), first_entry=0, states_max=200, seed=1).states)
        assert any(state.fua_count == 0 and len(state.ahead) > 1 for state in states)
        for state in states:
            again = parse_state(state.id, log, epochs(log))
            assert state.pieces(log).tolist() == again.pieces(log).tolist()


def overwriting(rewritten: bool) -> Requests:
    """A block written plainly, then with FUA before any FLUSH, then work elsewhere; at the end maybe written again."""
    disk = Requests()
    block = [Op("write", 0, 2, 1), Op("fua", 0, 2, 2), Op("flush", 0, 0, 1)]
    work = [op for fill in range(3, 9) for op in (Op("write", 3, 1, fill), Op("flush", 0, 0, fill))]
    for op in (*block, *work, *([Op("write", 0, 2, 9), Op("flush", 0, 0, 9)] if rewritten else [])):
        disk.submit(op)
        disk.complete(op)
    return disk


def test_a_block_written_with_fua_over_an_unflushed_write_of_it_puts_no_epoch_in_doubt(place: Path) -> None:
    overwriting(rewritten=True).end(place)
    with WriteLog.open(place) as log:
        # All that come after the FLUSH and before the block is written again.
        assert 7 == sum(epoch.doubtful for epoch in epochs(log))
    for rewritten in (False, True):
        disk = overwriting(rewritten)
        disk.end(place)
        with WriteLog.open(place) as log:
            assert is_void(disk, log) is not rewritten
            attach(bytes(disk.records), log)
            assert not is_void(disk, log)
            assert 0 == sum(epoch.doubtful for epoch in epochs(log))


@pytest.mark.parametrize(
    ("steps", "count"),
    [("Aa Bb Cc", 0), ("A B b a Cc", 1), ("A B a C b c", 2), ("A B C c b a", 2), ("A B a b C c", 1)],
)
def test_flushes_that_wait_for_another_may_be_carried_out_as_one(place: Path, steps: str, count: int) -> None:
    """A capital submits a FLUSH, its small letter completes it."""
    disk = Requests()
    flushes = {letter: Op("flush", rank, 0, rank) for rank, letter in enumerate("ABC")}
    for letter in steps.replace(" ", ""):
        if letter.isupper():
            disk.submit(flushes[letter])
        else:
            disk.complete(flushes[letter.upper()])
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        assert log.account
        assert count == joinable_flush_count(log.account, log.flags)


def test_the_times_of_a_trace_never_go_back_and_never_run_away(place: Path) -> None:
    disk, write = Requests(), Op("write", 0, 1, 1)
    disk.submit(write)
    disk.complete(write)
    disk.end(place)
    with WriteLog.open(place) as log:
        assert account_of(bytes(disk.records), log).times_ns is not None
        for first_ns, then_ns in ((2, 1), (0, 1 << 62), (1 << 63, 1 << 63)):
            records = bytearray(disk.records)
            for number, time_ns in enumerate((first_ns, then_ns)):
                struct.pack_into("<Q", records, number * RECORD.size + 8, time_ns)
            with pytest.raises(LogError, match="time "):
                account_of(bytes(records), log)
