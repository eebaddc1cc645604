"""The agenda of choices that alike epochs share, and what a plan has tried of each phase."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import CrashState, Fault, Logs, WriteLog, epochs, plan
from rig.faults.choosing.agenda import LISTED_MEMBERS_MAX, Choice, Turns, agenda, is_small, pair_cover
from rig.faults.choosing.paircoverage import pair_coverage
from rig.faults.choosing.phases import Phase, WriteRole, phases
from rig.faults.log.extents import overlaps
from rig.faults.states.state import Draw, landable, make_state
from tests.unit.faults.disks import Op, alike_transactions, everything, rebuild, run_of, some_ops
from tests.unit.faults.log.test_log import FLUSH, FUA, MARK, METADATA, Entry, encode


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agenda") / "log"


def ranks(choice: Choice) -> tuple[int, ...] | None:
    return None if choice is None else tuple(rank for part in choice for rank in part)


def parted_pairs(subsets: list[tuple[int, ...]], count: int) -> set[tuple[int, int]]:
    """The ordered pairs whose first is held, and whose second is not, by some subset."""
    return {(here, gone) for subset in subsets for here in subset for gone in range(count) if gone not in subset}


@given(count=st.integers(0, LISTED_MEMBERS_MAX), seed=st.integers())
def test_a_cover_parts_every_ordered_pair(count: int, seed: int) -> None:
    assert set(permutations(range(count), 2)) == parted_pairs(pair_cover(count, random.Random(seed)), count)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_fewer_subsets_part_every_pair(count: int) -> None:
    subsets = [subset for size in range(count + 1) for subset in combinations(range(count), size)]
    fewer = len(pair_cover(count, random.Random(1))) - 1
    every = set(permutations(range(count), 2))
    assert not any(every == parted_pairs(list(some), count) for some in combinations(subsets, fewer))


@given(count=st.integers(0, 8), seed=st.integers())
def test_a_small_batch_has_every_subset_once_and_pairs_and_singles_first(count: int, seed: int) -> None:
    choices = [ranks(choice) for choice in agenda(count, random.Random(seed))]
    whole = tuple(range(count))
    subsets = {subset for size in range(count + 1) for subset in combinations(whole, size)}
    assert len(subsets) == len(choices)
    assert subsets == set(choices)
    cover_count = len(pair_cover(count, random.Random(seed)))
    singles = {(), whole, *((rank,) for rank in whole), *(whole[:rank] + whole[rank + 1 :] for rank in whole)}
    first = [choice for choice in choices[: cover_count + len(singles)] if choice is not None]
    assert singles <= set(first)
    # Four others are among the cover: none, all, one lost, one landed.
    assert set(permutations(whole, 2)) == parted_pairs(first[: cover_count + 4], count)


@given(count=st.integers(9, 60), seed=st.integers())
def test_a_long_batch_has_every_single_every_beginning_and_end_and_draws_in_between(count: int, seed: int) -> None:
    assert not is_small(count)
    choices = [ranks(choice) for choice in agenda(count, random.Random(seed))]
    listed = [choice for choice in choices if choice is not None]
    whole = tuple(range(count))
    wanted = {(), whole, *((rank,) for rank in whole), *(whole[:rank] + whole[rank + 1 :] for rank in whole)}
    assert wanted | {part for at in whole for part in (whole[:at], whole[at:])} <= set(listed)
    assert choices.count(None) >= count
    cover = len(pair_cover(count, random.Random(seed)))
    is_listed = count <= LISTED_MEMBERS_MAX
    assert is_listed is (set(permutations(whole, 2)) == parted_pairs(listed[: cover + 4], count))


@given(count=st.integers(2, 40), seed=st.integers())
def test_the_first_choices_are_of_every_kind_and_begin_with_any_of_them(count: int, seed: int) -> None:
    choices = [
        ranks(choice) for choice in agenda(count, random.Random(seed))[: len(pair_cover(count, random.Random(1))) + 4]
    ]
    sizes = {len(choice) for choice in choices if choice is not None}
    assert {0, 1, count - 1, count} <= sizes


def test_phases_begin_with_choices_of_different_kinds() -> None:
    begins = {len(ranks(agenda(6, random.Random(seed))[0]) or ()) for seed in range(40)}
    assert {0, 1, 5, 6} < begins


@given(count=st.integers(1, 40), taken=st.lists(st.integers(0, 5), max_size=80))
def test_epochs_with_one_agenda_take_the_next_choice_and_each_takes_every_one_once(
    count: int, taken: list[int]
) -> None:
    turns = Turns(range(count))
    epochs = [turns.of_one_epoch() for _ in range(6)]
    had: list[list[int]] = [[] for _ in epochs]
    for epoch in taken:
        if (choice := next(epochs[epoch], None)) is not None:
            had[epoch].append(choice)
    rest = [[*mine, *own] for mine, own in zip(had, epochs, strict=True)]
    assert all(sorted(mine) == list(range(count)) for mine in rest)
    # A new epoch goes on where the others stopped.
    again = Turns(range(count))
    firsts = [next(again.of_one_epoch()) for _ in range(2 * count)]
    assert firsts == [*range(count), *range(count)]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), period=st.integers(1, 4), batch=st.integers(2, 8))
def test_with_enough_alike_epochs_four_states_each_try_every_pair_and_every_single(
    place: Path, seed: int, period: int, batch: int
) -> None:
    """As many alike transactions as a batch has choices that matter most, each followed by as many other epochs."""
    # The first writes what is new, so it is not like the others.
    count = 1 + len(pair_cover(batch, random.Random(1))) + 2 * batch + 2
    run_of(place, alike_transactions(count, batch, period))
    with WriteLog.open(place) as log:
        split = epochs(log)
        chosen = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=4 * len(split), seed=seed)
        (found,) = (one for one in pair_coverage(log, split[period:], chosen.states) if len(one.phase.roles) == batch)
    assert count - 1 == len(found.phase.epochs)
    assert batch * (batch - 1) == found.pair_count
    assert (batch, batch) == (found.lost_alone_count, found.landed_alone_count)


def test_a_phase_is_known_by_what_its_writes_are_for(place: Path) -> None:
    journal = [Entry(METADATA, 800, 8), Entry(METADATA, 808, 8), Entry(FLUSH), Entry(METADATA | FUA, 816, 8)]
    place.write_bytes(
        encode(
            [
                Entry(METADATA, 64, 8),
                Entry(0, 0, 16),
                *journal,
                # The next transaction in the journal, and a write in place between; both files are known now.
                Entry(0, 8, 8),
                Entry(0, 200, 8),
                Entry(METADATA, 64, 8),
                Entry(METADATA, 824, 8),
                Entry(FLUSH),
                Entry(MARK, text="x"),
                Entry(0, 200, 8),
                Entry(FLUSH),
                Entry(0, 208, 8),
                Entry(FLUSH),
                Entry(0, 0, 8),
                Entry(MARK, text="end"),
            ]
        )
    )
    with WriteLog.open(place) as log:
        found = phases(log, epochs(log))
    assert {
        ("metadata in place, new data, metadata in place, journal", 1),
        ("data written again, new data, metadata in place, journal", 1),
        ("data written again", 2),
        ("new data", 1),
    } == {(phase.text, len(phase.epochs)) for phase in found}
    assert (WriteRole.REWRITING,) == found[0].roles


@settings(max_examples=60)
@given(ops=some_ops(6, 4, 3, writes_max=5), data=st.data())
def test_what_was_tried_is_counted_as_by_hand(place: Path, ops: list[Op], data: st.DataObject) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        states = data.draw(st.lists(st.sampled_from(everything(Fault.POWERCUT, log).states), max_size=20))
        for one in pair_coverage(log, split, states):
            telling = [rank for rank in range(len(one.phase.roles)) if tells(log, one.phase, rank)]
            count = len(telling)
            assert count == one.write_count
            at_the_end = [state for state in states if state.epoch in one.phase.epochs and is_at_the_end(state)]
            own = [tuple(telling.index(rank) for rank in subset_of(state) if rank in telling) for state in at_the_end]
            assert len(parted_pairs(own, count)) == one.pair_count
            assert len({subset for subset in own if len(subset) == count - 1}) == one.lost_alone_count
            assert len({subset for subset in own if len(subset) == 1}) == one.landed_alone_count
            assert sum(state.epoch in one.phase.epochs for state in states) == one.state_count


def tells(log: WriteLog, phase: Phase, rank: int) -> bool:
    """Whether the device shows if a write of the phase landed, in one of its epochs, or may show it."""
    for epoch in phase.epochs:
        members = landable(epoch)
        begin, length = int(log.offset_bytes[members[rank]]), int(log.payload_bytes[members[rank]])
        others = [each for each in (*members, *epoch.fuas) if each != members[rank]]
        if not length or overlaps(log, others, begin, length):
            return True
        every = make_state(epoch, len(epoch.fuas), whole=members)
        but_one = make_state(epoch, len(epoch.fuas), whole=[*members[:rank], *members[rank + 1 :]])
        if rebuild(log, every) != rebuild(log, but_one):
            return True
    return False


def subset_of(state: CrashState) -> tuple[int, ...]:
    return tuple(state.epoch.batch.index(entry) for entry in state.whole)


def is_at_the_end(state: CrashState) -> bool:
    return state.fua_count == len(state.epoch.fuas)


def test_a_drawn_choice_counts_and_a_torn_one_does_not(place: Path) -> None:
    run_of(place, [Op("write", number, 1, 1 + number) for number in range(20)])
    with WriteLog.open(place) as log:
        (tail,) = epochs(log)
        draw = Draw(7, 50)
        landed = int(draw.choose(20).sum())
        (by_draw,) = pair_coverage(log, [tail], [make_state(tail, 0, draw=draw)])
        (by_units,) = pair_coverage(log, [tail], [make_state(tail, 0, draw=Draw(7, 50, 512))])
    assert landed * (20 - landed) == by_draw.pair_count > 0
    assert 0 == by_units.pair_count


def test_a_cut_before_a_fua_write_has_lost_no_write_alone(place: Path) -> None:
    run_of(place, [Op("fua", 0, 1, 1), Op("write", 3, 1, 2)])
    with WriteLog.open(place) as log:
        (tail,) = epochs(log)
        assert [0, 1] == [pair_coverage(log, [tail], [make_state(tail, cut)])[0].lost_alone_count for cut in (0, 1)]
