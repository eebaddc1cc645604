"""What a log alone proves: the generators and the checker against every history that could have made the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from rig.faults import Fault, StateIdError, WriteLog, epochs, parse_state
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.states.state import is_told, make_state
from tests.unit.faults.disks import (
    DISK_SECTORS,
    SECTOR,
    Content,
    Op,
    emit,
    everything,
    marks_claimed,
    rebuild,
    rebuild_device,
)
from tests.unit.faults.histories import Writes, entry_of, moment_of, moments, proof, some_logs
from tests.unit.faults.legality.test_legality import device
from tests.unit.faults.models.test_shorn import content_with_noise, is_reachable

END = Op("mark")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proven") / "log"


@settings(max_examples=150)
@given(entries=some_logs(4))
def test_a_power_cut_makes_all_that_every_history_can_leave_at_one_instant_and_claims_its_marks(
    place: Path, entries: list[Op]
) -> None:
    emit(place, [*entries, END], 1)
    with WriteLog.open(place) as log:
        states = everything(Fault.POWERCUT, log).states
        assert proof(entries).contents() == {rebuild(log, state): marks_claimed(log, state) for state in states}
        checker = Checker(log, DISK_SECTORS * SECTOR)
        split = epochs(log)
        for state in states:
            assert parse_state(state.id, log, split).whole == state.whole
            assert "legal" == str(checker.check(rebuild_device(log, state), state.instant, Rule.WHOLE)), state.id


@settings(max_examples=100)
@given(entries=some_logs(3, at_once_max=4, writes_max=3))
def test_the_checker_calls_legal_what_every_history_can_leave_and_illegal_only_what_none_can(
    place: Path, entries: list[Op]
) -> None:
    emit(place, [*entries, END], 1)
    found = proof(entries)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for instant, (always, ever) in enumerate(zip(found.always, found.ever, strict=True)):
            for content in set().union(*found.ever):
                answer = checker.check(device(content), entry_of(entries, instant), Rule.WHOLE).legality
                assert (answer is Legality.LEGAL) <= (content in always), (instant, content)
                assert (answer is Legality.ILLEGAL) <= (content not in ever), (instant, content)


@settings(max_examples=100)
@given(entries=some_logs(3, at_once_max=4, writes_max=3, fills=[0, 0, 1]))
def test_a_shorn_write_is_what_every_history_can_leave_by_its_instant(place: Path, entries: list[Op]) -> None:
    emit(place, [*entries, END], 1)
    every = list(moments(entries))
    marks = proof(entries).marks
    known: dict[tuple[Writes, Content], bool] = {}
    with WriteLog.open(place) as log:
        for state in everything(Fault.SHORN, log).states:
            content, claimed = content_with_noise(log, state), marks_claimed(log, state)
            for writes in {writes for history in every for _, writes in history}:
                known[writes, content] = is_reachable(moment_of(entries, writes), content)
            for history in every:
                late = (writes for instant, writes in history if marks[instant] >= claimed)
                assert any(known[writes, content] for writes in late), state.id


FUA, OLDER = Op("fua", 0, 2, 1), Op("write", 1, 2, 2)


def test_a_write_whose_order_is_open_lands_where_a_newer_one_hides_what_is_open(place: Path) -> None:
    # Nothing writes sector 0 again, so the newer write came after the FUA write; the older one may not have.
    emit(place, [FUA, Op("write", 1, 3, 2), Op("write", 0, 2, 3), Op("write", 9, 1, 4), Op("flush"), END], 1)
    with WriteLog.open(place) as log:
        first = epochs(log)[0]
        assert (1,) == first.ambiguous
        both = parse_state("e4.f1.w2.o1", log, epochs(log))
        assert both == make_state(first, 1, whole=(1, 2))
        assert (97, 98, 2 * 32 + 2, 2 * 32 + 3) == rebuild(log, both)[:4]
        assert both in everything(Fault.POWERCUT, log).states
        with pytest.raises(StateIdError, match="order of writes is open"):
            parse_state("e4.f1.o1", log, epochs(log))


def test_an_epoch_that_starts_on_an_open_sector_is_cut_where_its_writes_cover_that(place: Path) -> None:
    emit(place, [FUA, OLDER, Op("flush"), Op("mark"), Op("write", 1, 1, 4), Op("write", 9, 1, 4), Op("flush"), END], 1)
    with WriteLog.open(place) as log:
        split = epochs(log)
        assert [False, True, False] == [epoch.doubtful for epoch in split]
        of_second = {state.id: marks_claimed(log, state) for state in everything(Fault.POWERCUT, log).states}
        assert 1 == of_second["e6.f0.w4"]
        assert not {"e6.f0", "e6.f0.w5"} & set(of_second)
        assert not is_told(log, make_state(split[1], 0))
        with pytest.raises(StateIdError, match="order of writes is open"):
            parse_state("e6.f0.w5", log, split)


def test_what_came_after_a_write_that_came_after_a_fua_write_came_after_that_too(place: Path) -> None:
    # The first ordinary write is the last one of sector 0, so it came after the FUA write; so did the second.
    emit(place, [FUA, Op("write", 0, 1, 2), Op("write", 1, 1, 2), Op("flush"), Op("write", 1, 1, 4), END], 1)
    with WriteLog.open(place) as log:
        assert [((), False)] * 2 == [(epoch.ambiguous, epoch.doubtful) for epoch in epochs(log)]
        assert "legal" == str(
            Checker(log, DISK_SECTORS * SECTOR).check(
                rebuild_device(log, parse_state("tail.f0", log, epochs(log))), log.entry_count, Rule.WHOLE
            )
        )
