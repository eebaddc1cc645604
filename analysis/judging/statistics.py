"""Exact confidence bounds for counts, and the only wording in which they are shown.

A bound is about the population from which the crash states were drawn: the legal crash states of one recording. It is
not the probability that a power cut in the field does harm. Zero of n never means more than "at most this much".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Proportion:
    """`count` of `total` with the exact one-sided upper bound of the true share."""

    count: int
    total: int
    upper: float

    @property
    def text(self) -> str:
        """Return text such as `0 of 4812, <= 0.063 %`; the bound is rounded up, never down."""
        if self.total == 0:
            return "0 of 0, nothing judged"
        return f"{self.count} of {self.total}, {self.bound_text}"

    @property
    def bound_text(self) -> str:
        """Return text such as `<= 0.063 %`, or `no upper bound` if the bound says nothing."""
        percent = _round_up(self.upper * 100)
        return f"<= {percent} %" if percent is not None else "no upper bound"


def proportion(count: int, total: int) -> Proportion:
    """Return `count` of `total` together with its exact upper bound."""
    return Proportion(count, total, upper_bound(count, total))


def upper_bound(count: int, total: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a share, given `count` hits in `total` trials.

    Clopper and Pearson 1934 (Biometrika 26, 404-413): the p at which `count` or fewer of `total` has the probability
    1 - confidence, which is the confidence quantile of Beta(count + 1, total - count). For count = 0 that is
    1 - (1 - confidence) ** (1 / total), about 3 / total at 95 %. With no trials, or with every trial a hit, it is 1.
    """
    if not 0 <= count <= total:
        raise ValueError(f"a count must lie between 0 and its total, not {count} of {total}")
    if count == total:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, total - count, confidence))


def _round_up(percent: float) -> str | None:
    """Return the percentage with two significant digits, rounded up; None from 100 % on, which says nothing."""
    if percent <= 0:
        raise ValueError(f"an upper bound is above 0, not {percent} %")
    decimals = max(0, 1 - math.floor(math.log10(percent)))
    scale = 10**decimals
    # The tolerance keeps 5.0 from becoming 5.1 by the last bit of a float.
    rounded = math.ceil(percent * scale - 1e-9) / scale
    if math.log10(rounded) >= 2 - decimals:
        decimals = max(0, decimals - 1)
    return None if rounded >= 100 else f"{rounded:.{decimals}f}"
