"""How far the figures of two runs of the same tree may lie apart, by chance alone.

Another seed gives another recording and other crash states, so its figures differ although nothing has changed. One run
shows how much: its transactions, in order, are divided into batches of equal length, and the batches differ from each
other much as runs do (the method of batch means: Law, Simulation Modeling and Analysis, 9.5.3). Long batches are nearly
independent although neighbouring transactions are not: a loss grows from one checkpoint to the next.

A span is for the figure of a new run of equal length. It is wide, because a false alarm costs a team more than a small
change that goes unnoticed for a while: of 10,000 comparisons without a change one lies outside.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rig.analysis.judging.statistics import upper_bound
from rig.contract.results import MeasuredScenario, Verdict

CONFIDENCE = 0.9999
# Batches have at least four transactions.
_BATCHES_MAX, _BATCH_MIN = 10, 4
# One batch shows no spread.
_SHOWING_SPREAD = 2
# A baseline keeps six significant digits.
_ROUNDING = 1e-5
# The figure of a new run and the recorded one each miss the truth, independently.
_TWO_RUNS = math.sqrt(2)


@dataclass(frozen=True)
class FigureSpan:
    """A figure, and the bounds within which another run may find it; None for a side that does not matter."""

    value: float
    low: float | None = None
    high: float | None = None

    def is_above(self, value: float) -> bool:
        """Return whether a value lies above the span."""
        return self.high is not None and value > self.high + _ROUNDING * max(self.high, 1)

    def is_below(self, value: float) -> bool:
        """Return whether a value lies below the span."""
        return self.low is not None and value < self.low - _ROUNDING * max(self.low, 1)


def mean_loss(measured: MeasuredScenario, judged: Sequence[Verdict], lost: Callable[[Verdict], float]) -> FigureSpan:
    """Return the mean of a loss over the judged states of a scenario; there must be at least one."""
    values = [lost(verdict) for verdict in judged]
    value = statistics.fmean(values)
    means = [statistics.fmean(map(lost, batch)) for batch in _batches(measured, judged)]
    spread = _spread(means)
    # A loss that one run in many shows is not seen in the batches of the others, and where all lose the same, a larger
    # one is not.
    exposures = len({verdict.exposure for verdict in judged})
    losing = len({verdict.exposure for verdict in judged if lost(verdict)})
    unseen = upper_bound(losing, exposures, CONFIDENCE) - losing / exposures
    rare = max(unseen, upper_bound(0, exposures, CONFIDENCE)) * max(*values, 1)
    high = value + max(spread, _TWO_RUNS * rare)
    return FigureSpan(value, max(0.0, value - spread), high if math.isfinite(high) else None)


def most_lost(measured: MeasuredScenario, judged: Sequence[Verdict], lost: Callable[[Verdict], float]) -> FigureSpan:
    """Return the largest loss in any judged state of a scenario; there must be at least one."""
    most = max(map(lost, judged))
    maxima = [max(map(lost, batch)) for batch in _batches(measured, judged)]
    if len(maxima) < _SHOWING_SPREAD:
        return FigureSpan(most)
    # The bound holds for the largest of as many new batches.
    margin = _t(len(maxima), len(maxima)) * statistics.stdev(maxima) * math.sqrt(1 + 1 / len(maxima))
    return FigureSpan(most, None, max(most, math.floor(statistics.fmean(maxima) + margin)))


def per_s(latencies_ns: Sequence[int]) -> FigureSpan:
    """Return how many transactions a second there are, given the time of each in order; there must be at least one."""
    size = max(_BATCH_MIN, -(-len(latencies_ns) // _BATCHES_MAX))
    batches = [latencies_ns[begin : begin + size] for begin in range(0, len(latencies_ns), size)]
    spread_ns = _spread([statistics.fmean(batch) for batch in batches if len(batch) == size])
    return _rate(statistics.fmean(latencies_ns) / 1e9, spread_ns / 1e9)


def widen(old: FigureSpan, new: FigureSpan) -> FigureSpan:
    """Return the span of a recorded speed that allows for the spread of both runs (Welch's test).

    A stall of some milliseconds meets one transaction in twenty, so a run of 40 may have none. Its own span is too
    narrow for a run that has some.
    """
    first, second = (1 / span.low - 1 / span.value if span.low else math.inf for span in (old, new))
    return _rate(1 / old.value, math.hypot(first, second) / _TWO_RUNS)


def _rate(mean_s: float, spread_s: float) -> FigureSpan:
    """Return a speed, given the mean time of a transaction and how far another run's mean may lie from it."""
    slowest, fastest = mean_s + spread_s, mean_s - spread_s
    return FigureSpan(1 / mean_s, 1 / slowest if math.isfinite(slowest) else None, 1 / fastest if fastest > 0 else None)


def count(value: int) -> FigureSpan:
    """Return how many distinct things were seen, as a count of independent sightings."""
    spread = _TWO_RUNS * _z() * math.sqrt(value)
    return FigureSpan(value, max(0, math.floor(value - spread)), None)


def is_chance(count: int, here: int, there: int) -> bool:
    """Return whether chance explains that all `count` of a rare kind are among these `here`, none among others."""
    return math.comb(here, count) / math.comb(here + there, count) > 1 - CONFIDENCE


def _batches(measured: MeasuredScenario, judged: Sequence[Verdict]) -> list[list[Verdict]]:
    """Return the verdicts by the transactions that were acknowledged before the cut, in batches of equal length."""
    transaction_count = max(measured.recording.transaction_count, 1)
    size = max(_BATCH_MIN, -(-transaction_count // _BATCHES_MAX))
    batches: dict[int, list[Verdict]] = {}
    for verdict in judged:
        batches.setdefault(verdict.acked // size, []).append(verdict)
    return [batches[key] for key in sorted(batches)]


def _spread(means: Sequence[float]) -> float:
    """Return how far the mean of as many new batches may lie from the mean of these; infinite for a single batch."""
    if len(means) < _SHOWING_SPREAD:
        return math.inf
    return _t(len(means)) * statistics.stdev(means) * math.sqrt(2 / len(means))


def _t(batch_count: int, comparisons: int = 1) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(batch_count - 1, 1 - (1 - CONFIDENCE) / 2 / comparisons))


def _z() -> float:
    return statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2)
