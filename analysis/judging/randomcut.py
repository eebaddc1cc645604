"""The loss for a power cut at a uniformly random instant: how likely, how many transactions, how old the oldest.

The averages are over the cut instants of a scenario, drawn one from each of equal stretches of its virtual time. Each
is judged with everything unflushed lost: the worst that one disk with a volatile cache can do at that instant. The
probability is `Outcome.instant_share_losing` and nothing else. Numbers and ages of lost transactions are over the
instants at which a prefix of the transactions came back; a damaged database has no such number, and is counted
separately.

Neighbouring instants are alike, so they are not independent trials. The intervals rest on stretches of consecutive
instants. A stretch has one instant more than the longest run of losing instants, and at least as many as one
transaction has on average. For numbers and ages, and where there would be fewer than two stretches, a run also ends
where less is lost than an instant before: something became durable, and the loss begins to grow anew. Circular block
bootstrap (Politis and Romano 1992, in Exploring the Limits of Bootstrap, 263-270) draws whole stretches again and
again. Where every draw would give the same value, as with no loss at all, the exact bound over the number of stretches
is used instead, and no interval is narrower than the bound for no loss. With fewer than two stretches there is no
interval: the run is too short.

All figures hold for this workload, with its pauses, on this recording. A faster writer loses more in the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rig.analysis.judging.metrics import Outcome, loses
from rig.analysis.judging.statistics import CONFIDENCE, upper_bound
from rig.contract.results import Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DRAWINGS = 2000
_SEED = 1
_STRETCHES_MIN = 2
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Estimate:
    """A mean with its two-sided 95 % interval; an end is None where nothing is known about it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RandomCut:
    """What a power cut at a random instant of one recording loses."""

    instant_count: int
    # How many independent trials the instants amount to: for whether something is lost, and for how much is lost.
    stretch_count: int
    renewal_count: int
    # Probability that at least one acknowledged transaction is lost or the database is damaged.
    losing: Estimate
    damaged_share: float
    # Over the instants without damage; None without such instants.
    lost_mean: Estimate | None
    lost_max: int | None
    # Seconds from the ack of the oldest lost transaction to the cut, 0 where nothing is lost.
    age_mean_s: Estimate | None
    age_max_s: float | None
    # At most this share of instants loses more than `lost_max`.
    beyond_max_upper: float
    # Transactions per virtual second of the whole workload, its pauses included.
    pace_per_s: float


def random_cut(outcome: Outcome) -> RandomCut | None:
    """Return the loss at a random instant, or None if the scenario has no judged cut instants."""
    facts = outcome.measured.recording
    instants = sorted(
        (
            verdict
            for verdict in outcome.measured.verdicts
            if verdict.instant_weight_ns > 0 and not verdict.kind.is_infrastructure
        ),
        key=lambda verdict: (verdict.entry, verdict.state),
    )
    if outcome.instant_share_losing is None or not instants or not facts.span_virtual_ns:
        return None
    whole = [instant for instant in instants if not instant.kind.is_damage]
    between_falls = _stretch_length(whole, facts.transaction_count, ends_at_fall=True) if whole else 1
    length = _stretch_length(instants, facts.transaction_count)
    if len(instants) // length < _STRETCHES_MIN:
        length = _stretch_length(instants, facts.transaction_count, ends_at_fall=True)
    stretch_count = len(instants) // length
    weight_ns = sum(instant.instant_weight_ns for instant in instants)
    return RandomCut(
        instant_count=len(instants),
        stretch_count=stretch_count,
        renewal_count=len(whole) // between_falls,
        losing=_share(outcome.instant_share_losing, instants, length),
        damaged_share=sum(instant.instant_weight_ns for instant in instants if instant.kind.is_damage) / weight_ns,
        lost_mean=_mean(whole, lambda instant: instant.lost, between_falls),
        lost_max=max((instant.lost for instant in whole), default=None),
        age_mean_s=_mean(whole, lambda instant: instant.lost_virtual_ns / _NS_PER_S, between_falls),
        age_max_s=max((instant.lost_virtual_ns / _NS_PER_S for instant in whole), default=None),
        beyond_max_upper=upper_bound(0, len(whole) // between_falls),
        pace_per_s=facts.transaction_count * _NS_PER_S / facts.span_virtual_ns,
    )


def _stretch_length(instants: Sequence[Verdict], transaction_count: int, *, ends_at_fall: bool = False) -> int:
    """Return how many instants in a row count as one trial."""
    longest = run = before = 0
    for instant in instants:
        if ends_at_fall and instant.lost < before:
            run = 0
        run = run + 1 if loses(instant) else 0
        longest, before = max(longest, run), instant.lost
    of_transaction = -(-len(instants) // max(1, transaction_count))
    return min(len(instants), max(longest + 1, of_transaction))


def _share(value: float, instants: Sequence[Verdict], length: int) -> Estimate:
    """Return the probability of a loss; an exact bound replaces an end that no draw can move."""
    drawn = _interval(instants, lambda instant: float(loses(instant)), length)
    if drawn is None:
        return Estimate(value, None, None)
    low, high = drawn
    count = len(instants) // length
    if low == high:
        low, high = 1 - _exact(1 - value, count), _exact(value, count)
    # Instants with a loss cannot rule out more than instants without any.
    return Estimate(value, min(low, 1 - _exact(0, count)), max(high, _exact(0, count)))


def _exact(share: float, count: int) -> float:
    """Return the upper end for a share of `count` trials; two-sided, with half of the error on each side."""
    return upper_bound(min(count, math.ceil(share * count)), count, (1 + CONFIDENCE) / 2)


def _mean(instants: Sequence[Verdict], of: Callable[[Verdict], float], length: int) -> Estimate | None:
    """Return the mean weighted by virtual time; where every instant has the same value there is no interval."""
    weight_ns = sum(instant.instant_weight_ns for instant in instants)
    if not weight_ns:
        return None
    value = sum(of(instant) * instant.instant_weight_ns for instant in instants) / weight_ns
    drawn = _interval(instants, of, length)
    # The size of a loss that was never seen is unknown.
    if drawn is None or drawn[0] == drawn[1]:
        return Estimate(value, None, None)
    return Estimate(value, *drawn)


def _interval(instants: Sequence[Verdict], of: Callable[[Verdict], float], length: int) -> tuple[float, float] | None:
    """Return the ends of the bootstrap interval of a weighted mean; None with too few stretches."""
    import numpy as np

    count = len(instants)
    drawn_count = count // length if length else 0
    if drawn_count < _STRETCHES_MIN:
        return None
    weights = np.array([instant.instant_weight_ns for instant in instants], dtype=float)
    values = weights * np.array([of(instant) for instant in instants])
    starts = np.random.default_rng(_SEED).integers(count, size=(_DRAWINGS, drawn_count))
    sums = [_sums(terms, length)[starts].sum(axis=1) for terms in (values, weights)]
    error = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sums[0] / sums[1], [error, 1 - error])
    mean = values.sum() / weights.sum()
    return min(float(low), float(mean)), max(float(high), float(mean))


def _sums(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Return the sum of `length` values from each position on; the first value follows the last."""
    import numpy as np

    total = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    return total[length:] - total[:-length]
