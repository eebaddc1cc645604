"""The loss at a random instant is the share that the table shows, with an interval that covers what it should."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.judging.metrics import Outcome, outcome
from rig.analysis.judging.randomcut import RandomCut, random_cut
from rig.contract.results import Verdict, VerdictKind
from tests.unit.samples import SECOND_NS, measured_scenario, sqlite, verdict

WAL_NORMAL = sqlite("wal", "normal")


def instants(losses: list[int]) -> Outcome:
    """A scenario whose instants lost so many, in this order; -1 is damage. Each lost one is half a second old."""
    rows = [_instant(place, lost) for place, lost in enumerate(losses)]
    return outcome(measured_scenario(WAL_NORMAL, rows))


def _instant(place: int, lost: int) -> Verdict:
    kind = VerdictKind.TORN if lost < 0 else VerdictKind.LOST_SUFFIX if lost else VerdictKind.DURABLE
    return verdict(kind, max(0, lost), f"e{place}", entry=place, instant_weight_ns=SECOND_NS)


def cut_of(losses: list[int]) -> RandomCut:
    found = random_cut(instants(losses))
    assert found
    return found


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=60))
def test_the_probability_is_the_share_of_the_table_and_intervals_hold_the_values(losses: list[int]) -> None:
    summed = instants(losses)
    cut = random_cut(summed)
    assert cut is not None
    assert summed.instant_share_losing == cut.losing.value
    whole = [one for one in losses if one >= 0]
    assert (len(losses), max(whole, default=None)) == (cut.instant_count, cut.lost_max)
    assert pytest.approx(losses.count(-1) / len(losses)) == cut.damaged_share
    if whole:
        assert cut.lost_mean is not None
        assert cut.age_mean_s is not None
        assert pytest.approx(sum(whole) / len(whole)) == cut.lost_mean.value
        assert pytest.approx(cut.lost_mean.value / 2) == cut.age_mean_s.value
        assert cut.age_max_s == max(whole) / 2
    for one in filter(None, (cut.losing, cut.lost_mean, cut.age_mean_s)):
        if one.low is not None and one.high is not None:
            assert 0 <= one.low <= one.value <= one.high


def test_a_loss_that_was_seen_rules_out_no_more_than_none_at_all() -> None:
    none, one = cut_of([0] * 40).losing, cut_of([0] * 20 + [1] + [0] * 19).losing
    assert none.high is not None
    assert one.high is not None
    assert none.high < one.high


def test_a_pattern_that_every_drawing_repeats_is_not_certain() -> None:
    losing = cut_of([0, 1] * 40).losing
    assert losing.low is not None
    assert losing.high is not None
    assert losing.low < 0.4
    assert 0.6 < losing.high


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_verdicts_never_matters(losses: list[int], source: random.Random) -> None:
    rows = [_instant(place, lost) for place, lost in enumerate(losses)]
    shuffled = list(rows)
    source.shuffle(shuffled)
    assert random_cut(outcome(measured_scenario(WAL_NORMAL, rows))) == random_cut(
        outcome(measured_scenario(WAL_NORMAL, shuffled))
    )


def test_no_loss_in_sight_is_never_a_probability_of_zero() -> None:
    losing = cut_of([0] * 80).losing
    assert (0.0, 0.0) == (losing.value, losing.low)
    # 40 transactions, so 40 independent trials: 1 - 0.025 ** (1 / 40).
    assert losing.high == pytest.approx(0.0881, abs=1e-4)
    assert cut_of([0] * 80).lost_mean.low is None  # type: ignore[union-attr]


def test_a_loss_at_every_instant_is_one_trial_and_has_no_interval() -> None:
    cut = cut_of([3] * 80)
    assert (1, 1.0, None, None) == (cut.stretch_count, cut.losing.value, cut.losing.low, cut.losing.high)


def test_long_stretches_of_loss_give_a_wider_interval_than_short_ones() -> None:
    short, long = cut_of([0, 1] * 60).losing, cut_of(([0] * 10 + [1] * 10) * 6).losing
    assert 0.5 == short.value == long.value
    assert None not in {short.low, short.high, long.low, long.high}
    assert long.high - long.low > short.high - short.low  # type: ignore[operator]


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Losses that build up until a checkpoint, at random, drawn from a process whose share is known."""
    source, covered, tries = random.Random(7), 0, 120
    for _ in range(tries):
        losses: list[int] = []
        while len(losses) < 240:
            losses += [0] * source.randint(1, 9) + [1] * source.randint(1, 9)
        losing = cut_of(losses[:240]).losing
        assert losing.low is not None
        assert losing.high is not None
        covered += losing.low <= 0.5 <= losing.high
    assert covered >= 0.88 * tries


def test_a_loss_that_falls_and_grows_again_is_as_many_trials_as_it_falls_though_it_never_ends() -> None:
    cut = cut_of([3, 5, 7, 9] * 20)
    assert (16, 16) == (cut.stretch_count, cut.renewal_count)
    assert cut.lost_mean
    assert cut.lost_mean.low is not None
    assert cut.losing.low == pytest.approx(1 - 0.2059, abs=1e-3)
    # As long as there are two stretches, a loss that falls and does not end is one run.
    alike = cut_of([0, 0, 5, 7, 9, 4, 6, 8] * 10)
    assert (80 // 7, 80 // 4) == (alike.stretch_count, alike.renewal_count)


def test_the_interval_of_how_much_is_lost_covers_the_truth_about_as_often_as_it_says() -> None:
    """What is lost grows by one until the kernel writes back all but a few, after a random time."""
    source, covered, tries = random.Random(11), 0, 120
    truth = statistics.mean(_growing(source, 200_000))
    for _ in range(tries):
        mean = cut_of(_growing(source, 240)).lost_mean
        assert mean
        assert mean.low is not None
        assert mean.high is not None
        covered += mean.low <= truth <= mean.high
    assert covered >= 0.85 * tries


def _growing(source: random.Random, count: int) -> list[int]:
    losses: list[int] = []
    while len(losses) < count:
        left = source.randint(1, 3)
        losses += range(left, left + source.randint(2, 12))
    return losses[:count]


def test_without_instants_there_is_nothing_to_say() -> None:
    assert random_cut(outcome(measured_scenario(WAL_NORMAL, [verdict()]))) is None


def test_the_pace_is_that_of_the_whole_workload() -> None:
    assert pytest.approx(40 / 17) == cut_of([0, 1]).pace_per_s
