"""How long transactions took, from the call until the acknowledgement, by percentiles.

Percentiles are measured values (nearest rank), never interpolated. If there are few transactions, the 99th is the
largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Latencies:
    """Latencies of all transactions of an arm (real) or of a recording (virtual), in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def latencies(taken_ns: Iterable[int]) -> Latencies | None:
    """Return the percentiles; None if nothing was measured."""
    ordered = sorted(taken_ns)
    if not ordered:
        return None
    return Latencies(*(percentile(ordered, share) / 1e6 for share in (0.5, 0.95, 0.99, 1)))


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest of the ordered values that at least this share of them does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
