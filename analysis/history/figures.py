"""The figures of one scenario of one run, as JUnit XML, the pytest plugin, the history and comparisons give them."""

from __future__ import annotations

from dataclasses import dataclass

from rig.analysis.judging.outcome import Row


@dataclass(frozen=True)
class Figures:
    """The figures of a scenario; None for a figure that it does not have. Speeds and latencies are in virtual time."""

    result: str
    # The result in the words of the table: a mutant is noticed or survives, a sabotaged control is broken.
    shown: str
    # What the documentation guarantees; empty if that is not known.
    promise: str
    states: int
    disk_contents: int
    # The exposure.
    file_contents: int
    lost_max: int | None
    lost_mean: float | None
    instant_share_losing: float | None
    # Damaged file contents of all, with the bound.
    damage: str
    damaged_contents: int
    transactions_per_virtual_s: float | None
    flush_per_transaction: float | None
    latency_p50_virtual_ms: float | None
    latency_p99_virtual_ms: float | None
    # The digests of the recording's logs.
    recording: str


def figures(row: Row) -> Figures:
    """Return the figures of a scenario."""
    outcome = row.outcome
    latencies = outcome.latencies
    return Figures(
        result=row.judgement.result.value,
        shown=row.result_text,
        promise=row.promise.keeps.value if row.promise else "",
        states=outcome.state_count,
        disk_contents=outcome.content_count,
        file_contents=outcome.exposure_count,
        lost_max=outcome.lost_max,
        lost_mean=outcome.lost_mean,
        instant_share_losing=outcome.instant_share_losing,
        damage=outcome.damage.text,
        damaged_contents=outcome.damage.count,
        transactions_per_virtual_s=outcome.transactions_per_s,
        flush_per_transaction=outcome.flush_per_transaction,
        latency_p50_virtual_ms=latencies.p50_ms if latencies else None,
        latency_p99_virtual_ms=latencies.p99_ms if latencies else None,
        recording=outcome.measured.recording.digest,
    )
