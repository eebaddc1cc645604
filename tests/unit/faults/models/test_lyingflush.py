"""Lying flushes against a brute-force disk that ignores its last flushes: exactly what it may lose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings

from rig.faults import Fault, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.models.lyingflush import ignored_counts
from rig.faults.states.state import make_lying_state, window_of
from tests.unit.faults.disks import (
    Content,
    Moment,
    Op,
    everything,
    marks_claimed,
    passes_self_check,
    reachable,
    rebuild,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lying") / "log"


@settings(max_examples=100)
@given(ops=some_ops(4, 0, 3, writes_max=4))
# The write has the bytes of the last FUA, so its order to the one before is open once the last is lost.
@example(
    ops=[
        *(op for _ in range(2) for op in (Op("mark"), Op("write", 0, 1, 0))),
        Op("fua", 0, 2, 1),
        Op("flush-begin"),
        Op("fua", 0, 2, 0),
    ]
)
def test_every_state_is_left_by_a_disk_that_ignored_so_many_flushes(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        possible: dict[int, dict[Content, int]] = {}
        for state in plan(Fault.LYINGFLUSH, Logs(log), first_entry=-1, states_max=80, seed=1).states:
            assert state.window is not None
            count = state.window.flushes_ignored
            possible.setdefault(count, reachable(disk.lying_moments(count)))
            assert possible[count].get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id


@settings(max_examples=60)
@given(ops=some_ops(6, 4, 2, writes_max=2))
def test_a_plan_without_limit_holds_all_that_the_lie_can_leave_at_its_latest_instant(
    place: Path, ops: list[Op]
) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        found = everything(Fault.LYINGFLUSH, log)
        assume(found.epochs_sampled == 0)
        expected: dict[Content, int] = {}
        for epoch in split:
            for count in ignored_counts(split, epoch, -1):
                base = split[epoch.number - count].begin
                writes = [(op, index < base) for index, op in enumerate(disk.log) if op.kind in {"write", "fua"}]
                entries = [index for index, op in enumerate(disk.log) if op.kind in {"write", "fua"}]
                kept = tuple(pair for pair, index in zip(writes, entries, strict=True) if index < epoch.end)
                marks = sum(op.kind == "mark" for op in disk.log[: epoch.end]) - (epoch.flush is None)
                for content in Moment(kept, 0).whole_contents():
                    expected[content] = max(expected.get(content, 0), marks)
        assert set(expected) == {rebuild(log, state) for state in found.states}
        assert expected == {rebuild(log, state): marks_claimed(log, state) for state in found.states}


def test_it_can_lose_what_was_acknowledged_after_its_flush(place: Path) -> None:
    run_of(place, [Op("write", 0, 1, 1), *FLUSH, Op("mark"), Op("write", 1, 1, 2), *FLUSH, Op("mark"), *FLUSH])
    with WriteLog.open(place) as log:
        contents = {
            rebuild(log, state)[:2]: marks_claimed(log, state) for state in everything(Fault.LYINGFLUSH, log).states
        }
    # At the closing FLUSH of the last epoch both marks had been seen, and with three flushes ignored all is gone.
    assert {(0, 0): 2, (33, 0): 2, (0, 65): 2, (33, 65): 2} == contents


def test_windows_never_reach_into_the_setup(place: Path) -> None:
    run_of(place, [op for n in range(30) for op in (Op("write", n, 1, n + 1), Op("mark"), *FLUSH)])
    with WriteLog.open(place) as log:
        split = epochs(log)
        first_entry = log.marks[9].entry_index
        assert [1, 2, 4, 8, 16, 20] == ignored_counts(split, split[-1], first_entry)
        assert [] == ignored_counts(split, split[10], first_entry)
        assert [1, 2] == ignored_counts(split, split[12], first_entry)
        chosen = plan(Fault.LYINGFLUSH, Logs(log), split, first_entry=first_entry, states_max=300, seed=1)
        assert all(state.base_end > first_entry for state in chosen.states)
        assert {1, 2, 4, 8, 16} <= {state.window.flushes_ignored for state in chosen.states if state.window}


@settings(max_examples=40)
@given(ops=some_ops(6, 0, 3, writes_max=4))
def test_a_window_without_ignored_flushes_lets_fua_writes_go_as_well(place: Path, ops: list[Op]) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        for epoch in split:
            window = window_of(split, epoch, 0)
            assert set(epoch.fuas) <= set(window.members)
            state = make_lying_state(window, whole=window.members)
            assert epoch.end == state.instant
            if not epoch.doubtful:
                assert parse_state(state.id, log, split) == state
                continue
            with pytest.raises(StateIdError, match="order of writes is open"):
                parse_state(state.id, log, split)


@pytest.mark.parametrize("text", ["tail.l9", "tail.l1.i0", "tail.l1.t0:512:0", "tail.l1.w0.r00000000000000001p50"])
def test_an_id_of_more_than_the_lie_allows_is_refused(place: Path, text: str) -> None:
    run_of(place, [Op("write", 0, 2, 1), *FLUSH, Op("write", 1, 2, 2)])
    with WriteLog.open(place) as log:
        assert "tail.l1.w0" == parse_state("tail.l1.w0", log, epochs(log)).id
        with pytest.raises(StateIdError):
            parse_state(text, log, epochs(log))


def test_no_window_begins_where_the_log_does_not_tell_the_content(place: Path) -> None:
    doubt = [Op("write", 3, 1, 2), Op("fua", 3, 1, 1), *FLUSH]
    run_of(place, [*doubt, Op("mark"), *FLUSH, Op("write", 3, 1, 5), *FLUSH, Op("write", 4, 1, 5), *FLUSH])
    with WriteLog.open(place) as log:
        split = epochs(log)
        assert [False, True, True, False, False] == [epoch.doubtful for epoch in split]
        bases = {state.window.epochs[0].number for state in everything(Fault.LYINGFLUSH, log).states if state.window}
        assert {0, 3} == bases


def test_flushes_that_never_were_cannot_be_ignored(place: Path) -> None:
    run_of(place, [Op("write", 0, 2, 1), *FLUSH])
    with WriteLog.open(place) as log, pytest.raises(ValueError, match="2 FLUSHes ignored, but 1 completed"):
        window_of(epochs(log), epochs(log)[-1], 2)


def test_large_windows_are_sampled_by_the_seed(place: Path) -> None:
    run_of(place, [op for n in range(12) for op in (*(Op("write", (n + i) % 20, 1, n + 1) for i in range(6)), *FLUSH)])
    with WriteLog.open(place) as log:
        one, other = (plan(Fault.LYINGFLUSH, Logs(log), first_entry=-1, states_max=150, seed=s) for s in (1, 9))
        assert 150 == len(one.states)
        assert one != other
        split = epochs(log)
        assert all(parse_state(state.id, log, split) == state for state in one.states)
