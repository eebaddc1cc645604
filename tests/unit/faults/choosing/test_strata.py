"""Budgets shared out: every kind of epoch has a share, rare ones too, and no choice keeps step with a program."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import Fault, Logs, Plan, WriteLog, epochs, plan
from rig.faults.choosing.phases import phases
from rig.faults.choosing.strata import EARLY_SHARE, breadth, draw_order, strata, stratified_sample
from tests.unit.faults.disks import Op, alike_transactions, run_of

FLUSH = [Op("flush-begin"), Op("flush-end")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strata") / "log"


@given(count=st.integers(0, 200), seed=st.integers())
def test_a_drawn_order_has_every_item_once_and_every_beginning_is_spread(count: int, seed: int) -> None:
    order = draw_order(range(count), random.Random(seed))
    assert list(range(count)) == sorted(order)
    for end in range(count + 1):
        late = sum(item >= count / 2 for item in order[:end])
        assert abs(late - end / 2) <= 1, "one half has more than the other"


@given(count=st.integers(0, 200), count_max=st.integers(1, 60), seed=st.integers())
def test_a_stratified_sample_has_one_item_of_each_stretch(count: int, count_max: int, seed: int) -> None:
    sample = stratified_sample(range(count), count_max, random.Random(seed))
    assert min(count, count_max) == len(sample)
    if count > count_max:
        assert list(range(count_max)) == [-(-(item + 1) * count_max // count) - 1 for item in sample]


def test_a_choice_does_not_keep_step_with_a_program_that_works_in_periods() -> None:
    """40 creations of 35.6 epochs each: of 60 epochs taken evenly only few phases of a creation are met."""
    count, period = 1423, 35.6
    evenly = {int(rank * count / 60 % period) for rank in range(60)}
    drawn = {int(epoch % period) for epoch in draw_order(range(count), random.Random(1))[:60]}
    assert len(evenly) < 20 < len(drawn)


def planned(place: Path, ops: list[Op], states_max: int, first_ack: int = 0, seed: int = 1) -> Plan:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        return plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=states_max, seed=seed, first_ack=first_ack)


RARE = [Op("write", 20 + rank, 1, 9) for rank in range(5)]


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), at=st.integers(5, 55))
def test_a_phase_that_occurs_once_among_sixty_others_is_exhausted_where_it_is_small(
    place: Path, seed: int, at: int
) -> None:
    """Of its 32 subsets 3 show a bug; an equal share of 160 states for each epoch would be two or three."""
    usual = alike_transactions(60, 3, 1)
    ops = [*usual[: 5 * at], *RARE, *FLUSH, *usual[5 * at :]]
    found = Counter(len(state.epoch.batch) for state in planned(place, ops, 160, seed=seed).chosen)
    assert found[5] >= 25
    assert found[3] >= 100


def test_what_comes_before_the_first_acknowledgement_has_its_share(place: Path) -> None:
    """One small epoch before it, and fifteen kinds of epochs after it."""
    run_of(place, [Op("write", 0, 1, 7), *FLUSH, Op("mark"), *(op for size in range(1, 16) for op in epoch_of(size))])
    with WriteLog.open(place) as log:
        split = epochs(log)
        found = strata(split, phases(log, split), 2, 1, breadth)
        chosen = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=60, seed=1, first_ack=2).chosen
    early = sum(one.weight for one in found if one.is_early)
    assert [1] == [len(one.epochs) for one in found if one.is_early]
    assert pytest.approx(EARLY_SHARE) == early / sum(one.weight for one in found)
    # Two contents are all that it has, and one of them is what the next epoch begins with.
    assert any(state.instant <= 2 for state in chosen)


def epoch_of(size: int) -> list[Op]:
    return [*(Op("write", rank, 1, size) for rank in range(size)), *FLUSH]


def test_without_states_before_the_first_acknowledgement_nothing_is_set_apart(place: Path) -> None:
    run_of(place, [Op("mark"), *alike_transactions(10, 3, 1)])
    with WriteLog.open(place) as log:
        split = epochs(log)
        found = strata(split, phases(log, split), 0, 1, breadth)
    assert not any(one.is_early for one in found)
    assert sorted(epoch.number for one in found for epoch in one.epochs) == [epoch.number for epoch in split]


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_first_states_of_a_plan_go_through_all_phases_and_kinds(place: Path, seed: int) -> None:
    kinds = [[Op("write", rank, 1, 1 + phase) for rank in range(phase, 2 * phase + 2)] for phase in range(6)]
    ops = [op for number in range(20) for writes in kinds for op in (*writes, *FLUSH)]
    tour = planned(place, ops, 160, seed=seed).chosen[:56]
    shown = {len(state.epoch.batch) for state in tour}
    # Before a batch lands, the disk is as after the one before. The plan takes the later instant of the two.
    before = {0: 7, 2: 7, **{size: size - 1 for size in range(3, 8)}}
    shown |= {before[len(state.epoch.batch)] for state in tour if not state.whole}
    assert {2, 3, 4, 5, 6, 7} <= shown
    lost = [len(state.epoch.batch) - len(state.whole) for state in tour]
    landed = [len(state.whole) for state in tour]
    assert all(count in lost and count in landed for count in (0, 1))
    assert any(min(one) >= 2 for one in zip(lost, landed, strict=True))
    # Not in the order of the log.
    assert sorted(state.base_end for state in tour) != [state.base_end for state in tour]
