"""Bounds are exact, are rounded against us, and are never worded as certainty."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.judging.statistics import proportion, upper_bound

counts = st.integers(1, 400).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def binomial_at_most(count: int, total: int, share: float) -> float:
    return math.fsum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count + 1))


@given(counts)
def test_at_the_bound_so_few_hits_have_a_probability_of_five_percent(pair: tuple[int, int]) -> None:
    count, total = pair
    bound = upper_bound(count, total)
    assert count / total <= bound <= 1
    if count < total:
        assert binomial_at_most(count, total, bound) == pytest.approx(0.05, rel=1e-6)


@given(counts)
def test_more_trials_narrow_the_bound_and_more_hits_widen_it(pair: tuple[int, int]) -> None:
    count, total = pair
    assert upper_bound(count, total + 1) < upper_bound(count, total) or count == total == 0
    assert upper_bound(count, total) <= upper_bound(count + 1, total + 1)


def test_without_trials_or_with_only_hits_nothing_is_bounded() -> None:
    assert upper_bound(0, 0) == 1
    assert upper_bound(7, 7) == 1
    assert proportion(0, 0).text == "0 of 0, nothing judged"
    assert proportion(7, 7).text == "7 of 7, no upper bound"


@pytest.mark.parametrize(("count", "total"), [(-1, 5), (6, 5)])
def test_an_impossible_count_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"{count} of {total}"):
        upper_bound(count, total)


def test_zero_of_many_reads_as_at_most_so_much() -> None:
    assert proportion(0, 4812).text == "0 of 4812, <= 0.063 %"
    assert proportion(0, 300).text == "0 of 300, <= 1.0 %"
    assert proportion(3, 100).text == "3 of 100, <= 7.6 %"


@given(counts)
def test_the_bound_as_shown_is_never_below_the_bound(pair: tuple[int, int]) -> None:
    shown = proportion(*pair)
    assert "100 %" not in shown.text
    match = re.fullmatch(r"<= ([0-9.]+) %", shown.bound_text)
    if match is None:
        assert shown.upper > 0.98
        return
    assert shown.upper * 100 <= float(match[1]) + 1e-6
    assert float(match[1]) <= shown.upper * 100 * 1.1 + 1e-6
