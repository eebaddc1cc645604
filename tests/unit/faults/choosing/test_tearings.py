"""The agenda of tears: the plainest first, and how many of these a plan has tried."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import CrashState, Fault, Logs, WriteLog, epochs, pair_coverage, plan
from rig.faults.choosing.tearings import Half, Tearing, tearings
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.log.extents import changed_sectors
from rig.faults.states.state import Draw, Tear, landable, make_state, unit_count
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Op, rebuild_device, run_of, some_ops

FLUSH = [Op("flush-begin"), Op("flush-end")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tearings") / "log"


def whole_ranks(tearing: Tearing) -> set[int]:
    return {rank for part in tearing.whole for rank in part}


@given(count=st.integers(1, 60), seed=st.integers())
def test_each_write_is_torn_with_all_others_first_then_alone_then_the_other_way_round(count: int, seed: int) -> None:
    listed = [choice for choice in tearings(count, random.Random(seed)) if choice]
    plain = listed[: 4 * count] if count > 1 else listed[:2]
    assert all(len(choice.halves) == 1 and not choice.halves[0].sector_count for choice in plain)
    others = {rank: set(range(count)) - {rank} for rank in range(count)}
    seen = {(one.halves[0].rank, one.halves[0].is_end, frozenset(whole_ranks(one))) for one in plain}
    assert {
        (rank, is_end, frozenset(whole))
        for rank, is_end in product(range(count), (False, True))
        for whole in ((), others[rank])
    } == seen
    assert {frozenset(others[one.halves[0].rank]) for one in plain[:count]} == {
        frozenset(whole_ranks(one)) for one in plain[:count]
    }


@given(count=st.integers(0, 60), seed=st.integers())
def test_no_choice_of_tears_comes_twice_and_nothing_is_both_torn_and_whole(count: int, seed: int) -> None:
    agenda = tearings(count, random.Random(seed))
    listed = [choice for choice in agenda if choice]
    assert len(set(listed)) == len(listed)
    assert agenda.count(None) * 3 >= len(listed)
    for choice in listed:
        torn = [half.rank for half in choice.halves]
        assert len(set(torn)) == len(torn)
        assert not set(torn) & whole_ranks(choice)
        assert {*torn, *whole_ranks(choice)} <= set(range(count))
    if 2 <= count <= 16:
        assert any(len(choice.halves) == 2 for choice in listed)
        assert {Half(rank, is_end, at) for rank, is_end, at in product(range(count), (False, True), range(1, 8))} <= {
            half for choice in listed for half in choice.halves
        }


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 6), count=st.integers(1, 4))
def test_all_plain_tears_of_a_phase_of_six_writes_come_within_its_budget(
    place: Path, seed: int, batch: int, count: int
) -> None:
    writes = [[Op("write", 4 * rank, 4, 1 + number) for rank in range(batch)] for number in range(count)]
    run_of(place, [*[op for own in writes for op in (*own, *FLUSH)]])
    with WriteLog.open(place) as log:
        split = epochs(log)
        # Every fourth choice of the agenda is a draw.
        states = plan(Fault.TORN, Logs(log), first_entry=-1, states_max=6 * batch * min(2, count) + 8, seed=seed).chosen
        for one in pair_coverage(log, split, states):
            if one.state_count >= 6 * batch:
                assert (2 * batch, 2 * batch) == (one.tear_count, one.tears_tried)
        assert any(one.tears_tried == 2 * batch for one in pair_coverage(log, split, states))


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_alike_epochs_are_torn_at_several_places_and_also_in_the_middle(place: Path, seed: int) -> None:
    """Alike epochs of four long writes; so few states have only the plain tears of the agenda, and draws."""
    writes = [[Op("write", 8 * rank, 8, 1 + number) for rank in range(4)] for number in range(20)]
    run_of(place, [*[op for own in writes for op in (*own, *FLUSH)]])
    with WriteLog.open(place) as log:
        chosen = plan(Fault.TORN, Logs(log), first_entry=-1, states_max=20, seed=seed).chosen
        torn = [(state.epoch, state.tears[0]) for state in chosen if len(state.tears) == 1]
        changed = [changed_sectors(log, tear.entry_index, epoch.begin) for epoch, tear in torn]
    places = [len(tear.units) if 0 in tear.units else 8 - len(tear.units) for _, tear in torn]
    assert len(torn) >= 12
    assert len(set(places)) >= 3
    assert any(at == sectors[len(sectors) // 2] for at, sectors in zip(places, changed, strict=True))


@settings(max_examples=60)
@given(ops=some_ops(12, 0, 6, writes_max=4), data=st.data())
def test_plain_tears_are_counted_as_by_hand(place: Path, ops: list[Op], data: st.DataObject) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        drawn = plan(Fault.TORN, Logs(log), first_entry=-1, states_max=60, seed=1).states
        states = data.draw(st.lists(st.sampled_from(drawn), max_size=30)) if drawn else []
        for one in pair_coverage(log, split, states):
            found = set()
            for state in states:
                if state.epoch in one.phase.epochs and len(state.tears) == 1 and is_at_the_end(state):
                    (tear,), members = state.tears, landable(state.epoch)
                    ends = 0 in tear.units, unit_count(log, tear.entry_index, tear.unit_bytes) - 1 in tear.units
                    left = set(members) - {tear.entry_index}
                    if tear.entry_index in members and ends in {(True, False), (False, True)}:
                        rank = members.index(tear.entry_index)
                        found |= {(rank, True)} if set(state.whole) == left else set()
                        found |= {(rank, False)} if not state.whole else set()
            changing = [
                any(len(changed_sectors(log, landable(epoch)[rank], epoch.begin)) > 1 for epoch in one.phase.epochs)
                for rank in range(len(one.phase.roles))
            ]
            assert len({tear for tear in found if changing[tear[0]]}) == one.tears_tried
            assert 2 * sum(changing) == one.tear_count


def is_at_the_end(state: CrashState) -> bool:
    return state.fua_count == len(state.epoch.fuas) and not state.draw


def test_a_draw_of_sectors_and_a_hole_in_the_middle_are_no_plain_tears(place: Path) -> None:
    run_of(place, [Op("write", 0, 8, 1), Op("write", 8, 8, 2)])
    with WriteLog.open(place) as log:
        (tail,) = epochs(log)
        states = [
            make_state(tail, 0, draw=Draw(7, 50, 512)),
            make_state(tail, 0, whole=(1,), tears=(Tear(0, 512, (0, 1, 6, 7)),)),
            make_state(tail, 0, whole=(1,), tears=(Tear(0, 512, (3, 4)),)),
        ]
        (none,) = pair_coverage(log, [tail], states)
        (one,) = pair_coverage(log, [tail], [make_state(tail, 0, whole=(1,), tears=(Tear(0, 512, (0, 1, 2)),))])
    assert (4, 0, 3) == (none.tear_count, none.tears_tried, none.state_count)
    assert (4, 1, 1) == (one.tear_count, one.tears_tried, one.state_count)


@settings(max_examples=60)
@given(ops=some_ops(24, 16, 8, writes_max=4, align=1))
def test_every_torn_state_is_legal_by_the_independent_checker(place: Path, ops: list[Op]) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR, is_replay=False)
        for state in plan(Fault.TORN, Logs(log), first_entry=-1, states_max=120, seed=2).chosen:
            answer = checker.check(rebuild_device(log, state), state.instant, Rule.TORN)
            assert answer.legality is Legality.LEGAL, (state.id, str(answer))


def test_a_plan_of_torn_writes_wastes_no_state_on_whole_ones(place: Path) -> None:
    """In the log of a recording each part of a write is an entry, and a tear is inside of one."""
    ops = []
    for number in range(12):
        ops += [*(Op("write", 8 * rank, 8, 1 + rank + 4 * number) for rank in range(4)), *FLUSH]
    run_of(place, ops)
    with WriteLog.open(place) as log:
        log.split(4096)
        chosen = plan(Fault.TORN, Logs(log), first_entry=-1, states_max=100, seed=1).chosen
    # The tail has no batch, so nothing in it can be torn.
    assert all(state.tears or (state.draw and state.draw.unit_bytes == 512) for state in chosen if state.epoch.batch)
    alone = [state for state in chosen if len(state.tears) == 1]
    assert sum(len(state.whole) == 3 for state in alone) >= 20 <= sum(not state.whole for state in alone)
