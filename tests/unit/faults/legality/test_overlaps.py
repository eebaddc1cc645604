"""Writes of one place in flight together: what no disk can be held to is neither made nor called legal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, event, given, settings

from rig.faults import CrashState, Fault, LogError, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.log.submissions import attach
from tests.unit.faults.disks import (
    DISK_SECTORS,
    SECTOR,
    Op,
    everything,
    marks_claimed,
    rebuild,
    rebuild_device,
)
from tests.unit.faults.legality.test_legality import device
from tests.unit.faults.reachable import is_void
from tests.unit.faults.requests import Overlapping, Requests, overlapping_requests

RULES = {Fault.POWERCUT: Rule.WHOLE, Fault.TORN: Rule.TORN, Fault.SHORN: Rule.SHORN}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overlaps") / "log"


@settings(max_examples=400)
@given(disk=overlapping_requests(3))
def test_whichever_write_was_carried_out_last_every_state_made_is_reachable_and_legal(
    place: Path, disk: Overlapping
) -> None:
    disk.end(place)
    with WriteLog.open(place) as log:
        try:
            attach(bytes(disk.records), log)
        except LogError:
            assume(False)
        assume(not is_void(disk, log))
        event(f"open: {any(epoch.open_sectors for epoch in epochs(log))}")
        reached = disk.contents()
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for fault, rule in RULES.items():
            for state in everything(fault, log).states if fault is Fault.POWERCUT else some(fault, log):
                if fault is Fault.POWERCUT:
                    assert reached.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id
                assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, rule)), state.id


def whole(content: tuple[int, ...]) -> tuple[int, ...]:
    return (*content, *[0] * (DISK_SECTORS - len(content)))


def some(fault: Fault, log: WriteLog) -> list[CrashState]:
    return list(plan(fault, Logs(log), first_entry=-1, states_max=60, seed=1).states)


@settings(max_examples=200)
@given(disk=overlapping_requests(3))
def test_the_checker_calls_nothing_illegal_that_the_disk_could_hold(place: Path, disk: Overlapping) -> None:
    disk.end(place)
    with WriteLog.open(place) as log:
        headers = log.header_offset_bytes.tolist()
        try:
            attach(bytes(disk.records), log)
        except LogError:
            assume(False)
        assume(not is_void(disk, log))
        # Of a write that a FUA write covered before a FLUSH took it, the log has no longer what was there until then.
        assert log.account
        assume(log.entry_count == len(disk.log) and log.account.is_rest is not None and not log.account.is_rest.any())
        number = {header: entry for entry, header in enumerate(log.header_offset_bytes.tolist())}
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for before, moment in disk.before.items():
            for content in moment.whole_contents():
                answer = checker.check(device(content), number[headers[before]], Rule.WHOLE)
                assert answer.legality is not Legality.ILLEGAL, (before, content, str(answer))


def test_of_two_writes_in_flight_together_the_later_one_in_the_log_shows_in_no_state(place: Path) -> None:
    disk = Requests()
    first, second, flush = Op("write", 0, 2, 1), Op("write", 1, 2, 2), Op("flush", 0, 0, 1)
    for op in (first, second):
        disk.submit(op)
    for op in (first, second):
        disk.complete(op)
    after = [flush, Op("write", 5, 1, 3), Op("flush", 0, 0, 2), Op("write", 0, 3, 4), Op("flush", 0, 0, 3)]
    for op in after:
        disk.submit(op)
        disk.complete(op)
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        split = epochs(log)
        # Which of the two shows in sector 1 is open until it is written again.
        assert [False, True, True, False] == [epoch.doubtful for epoch in split]
        assert (1,) == split[0].ambiguous
        shown = {rebuild(log, state)[:3] for state in everything(Fault.POWERCUT, log).states}
        assert {(0, 0, 0), (33, 34, 0), (129, 130, 131)} == shown
        with pytest.raises(StateIdError, match="order of writes is open"):
            parse_state("e2.f0.w0.o1", log, split)
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for content, expected in (
            ((33, 34, 0), Legality.LEGAL),
            # The second alone: it may be the only one that landed.
            ((0, 65, 66), Legality.LEGAL),
            # Both, the first one below or on top.
            ((33, 65, 66), Legality.UNDECIDED),
            ((33, 34, 66), Legality.UNDECIDED),
            ((0, 34, 66), Legality.ILLEGAL),
        ):
            assert expected is checker.check(device(whole(content)), 2, Rule.WHOLE).legality, content


def test_the_order_that_the_end_shows_binds_no_cut_at_which_both_writes_were_in_flight(place: Path) -> None:
    disk = Requests()
    long, short, fua, flush = Op("write", 0, 2, 1), Op("write", 1, 1, 2), Op("fua", 5, 1, 3), Op("flush", 0, 0, 1)
    for op in (long, short, fua):
        disk.submit(op)
    for op in (fua, short, long):
        disk.complete(op)
    disk.submit(flush)
    disk.complete(flush)
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        checker = Checker(log, DISK_SECTORS * SECTOR)
        shown, swapped = (33, 34, 0, 0, 0, 97), (33, 65, 0, 0, 0, 97)
        assert Legality.LEGAL is checker.check(device(whole(shown)), 3, Rule.WHOLE).legality
        assert Legality.ILLEGAL is checker.check(device(whole(swapped)), 3, Rule.WHOLE).legality
        assert Legality.ILLEGAL is not checker.check(device(whole((33, 65))), 0, Rule.WHOLE).legality


def test_a_write_long_in_flight_has_no_order_to_a_fua_write_of_its_place_epochs_before(place: Path) -> None:
    disk, slow = Requests(), Op("write", 0, 1, 1)
    disk.submit(slow)
    for op in (Op("fua", 0, 1, 2), *(Op("flush", 0, 0, number) for number in range(1, 4))):
        disk.submit(op)
        disk.complete(op)
    disk.complete(slow)
    for op in (Op("flush", 0, 0, 4), Op("write", 0, 1, 3), Op("flush", 0, 0, 5)):
        disk.submit(op)
        disk.complete(op)
    disk.end(place)
    with WriteLog.open(place) as log:
        attach(bytes(disk.records), log)
        checker = Checker(log, DISK_SECTORS * SECTOR)
        states = everything(Fault.POWERCUT, log).states
        assert {0, 65, 97} == {rebuild(log, state)[0] for state in states}
        for state in states:
            assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, Rule.WHOLE)), state.id


def test_a_discard_zeros_nothing_that_was_written_after_it_though_the_log_has_that_before(place: Path) -> None:
    """The FLUSH that took the discard was submitted first and completed last."""
    disk, old, new = Requests(), Op("write", 0, 2, 1), Op("write", 0, 1, 2)
    first, second = Op("flush", 1, 0, 1), Op("flush", 2, 0, 2)
    for op in (old, Op("flush", 0, 0, 3)):
        disk.submit(op)
        disk.complete(op)
    disk.waiting.append(Op("discard", 0, 2))
    disk.submit(first)
    disk.submit(new)
    disk.complete(new)
    disk.submit(second)
    for flush in (second, first):
        disk.complete(flush)
    disk.end(place)
    with WriteLog.open(place) as log:
        assert ["write", "flush", "write", "flush", "discard", "flush", "mark"] == [op.kind for op in disk.log]
        attach(bytes(disk.records), log)
        states = [state for state in everything(Fault.DISCARD, log).states if state.base_end > 3]
        shown = {rebuild(log, state)[:2] for state in states}
        assert {(65, 34), (65, 0)} == shown
        checker = Checker(log, DISK_SECTORS * SECTOR)
        assert checker.check(device(whole((65, 0))), log.entry_count, Rule.DISCARDS).legality is Legality.LEGAL
        assert checker.check(device(whole((0, 0))), log.entry_count, Rule.DISCARDS).legality is Legality.ILLEGAL
