"""Shrinking, against predicates whose smallest sets are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.explain.shrink import Judge, smallest

COUNT_MAX = 30


class Bench:
    """Judges by a rule, and counts."""

    def __init__(self, culprits: Sequence[frozenset[int]]) -> None:
        self.culprits = culprits
        self.judged: list[frozenset[int]] = []

    def judge(self, candidates: Sequence[frozenset[int]]) -> list[bool]:
        """A set is broken if it holds all of some culprit."""
        self.judged += candidates
        return [self.holds(one) for one in candidates]

    def holds(self, one: frozenset[int]) -> bool:
        return any(culprit <= one for culprit in self.culprits)


@st.composite
def benches(draw: st.DrawFn, size_max: int = 4, first_size: int = 0, count_max: int = COUNT_MAX) -> tuple[int, Bench]:
    """A number of atoms, and a bench with one to three culprits; the first has `first_size` atoms, 0 for any size."""
    count = draw(st.integers(max(1, first_size), count_max))
    atoms = st.integers(0, count - 1)
    first = draw(st.frozensets(atoms, min_size=first_size or 1, max_size=first_size or size_max))
    others = draw(st.lists(st.frozensets(atoms, min_size=1, max_size=size_max), max_size=2))
    return count, Bench([first, *others])


@given(benches())
def test_what_is_enough_is_broken_and_nothing_can_be_left_out(case: tuple[int, Bench]) -> None:
    count, bench = case
    found = smallest(range(count), frozenset(range(count)), bench.judge)
    assert found.is_minimal
    for one in found.sets:
        assert bench.holds(one)
        assert not any(bench.holds(one - {atom}) for atom in one)


@given(benches(size_max=2, first_size=1))
def test_every_single_atom_that_is_enough_is_found(case: tuple[int, Bench]) -> None:
    count, bench = case
    singles = {culprit for culprit in bench.culprits if len(culprit) == 1}
    found = smallest(range(count), frozenset(range(count)), bench.judge)
    assert singles == set(found.sets)


@given(benches(size_max=5, first_size=2, count_max=12))
def test_a_pair_among_few_atoms_is_found_if_there_is_one(case: tuple[int, Bench]) -> None:
    count, bench = case
    found = smallest(range(count), frozenset(range(count)), bench.judge)
    smallest_size = min(
        size for size in range(1, 3) if any(map(bench.holds, map(frozenset, combinations(range(count), size))))
    )
    assert smallest_size == len(found.sets[0])


@given(benches(), st.data())
def test_a_start_that_is_no_superset_of_the_rest_is_enough(case: tuple[int, Bench], data: st.DataObject) -> None:
    count, bench = case
    start = data.draw(st.sampled_from(bench.culprits)) | data.draw(st.frozensets(st.integers(0, count - 1)))
    found = smallest(range(count), start, bench.judge)
    assert all(map(bench.holds, found.sets))


@given(st.integers(1, 40), st.integers())
def test_a_rule_without_any_order_still_gives_a_broken_set(count: int, salt: int) -> None:
    """The rule is not monotonous: a larger set may be whole where a smaller one is broken."""
    start = frozenset(range(count))

    def broken(one: frozenset[int]) -> bool:
        return one == start or random.Random(f"{salt} {sorted(one)}").random() < 0.2

    judge: Judge[int] = lambda candidates: [broken(one) for one in candidates]  # noqa: E731 - one line of a rule
    found = smallest(range(count), start, judge)
    assert all(map(broken, found.sets))


@given(benches())
def test_no_set_is_judged_twice(case: tuple[int, Bench]) -> None:
    count, bench = case
    found = smallest(range(count), frozenset(range(count)), bench.judge)
    assert len(set(bench.judged)) == len(bench.judged) == found.judged_count


@given(benches(), st.integers(0, 6))
def test_when_time_runs_out_the_best_set_so_far_is_broken(case: tuple[int, Bench], batches: int) -> None:
    count, bench = case
    left = iter(range(batches))
    found = smallest(range(count), frozenset(range(count)), bench.judge, lambda: next(left, None) is not None)
    assert all(map(bench.holds, found.sets))
    if not found.is_minimal:
        assert next(left, None) is None


def test_nothing_is_enough_if_the_empty_set_is_broken() -> None:
    found = smallest(range(5), frozenset(range(5)), lambda candidates: [True] * len(candidates))
    assert ((frozenset(),), 1) == (found.sets, found.judged_count)


def test_three_of_a_thousand_atoms_take_few_batches() -> None:
    bench = Bench([frozenset((3, 500, 997))])
    batches = []

    def judge(candidates: Sequence[frozenset[int]]) -> list[bool]:
        batches.append(len(candidates))
        return bench.judge(candidates)

    found = smallest(range(1000), frozenset(range(1000)), judge)
    assert (frozenset((3, 500, 997)),) == found.sets
    assert len(batches) < 60
    assert sum(batches) < 600
