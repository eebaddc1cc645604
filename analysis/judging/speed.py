"""What a measurement of speed shows: medians, ratios with intervals, latencies, flushes, and a document's own ratios.

A ratio divides two medians over the rounds. Its 95 % interval is a percentile bootstrap (Efron 1979, Annals of
Statistics 7, 1-26): whole rounds are drawn with replacement, because what happened on the host during a round affected
all its arms. The draws come from the measurement's seed, so the same file gives the same intervals. An interval tells
how much a repeated measurement would vary on this disk, not what another disk would show.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.analysis.judging.latencies import Latencies, latencies
from rig.speed.speeds import INSTRUCTIONS, Reads, Space, Speeds, Trial
from rig.speed.trials.replication import Figure

_RESAMPLES = 10_000
_CONFIDENCE = 0.95
# A ratio that differs from a document's by more than this share gets a sentence.
DEVIATION_MAX = 1 / 3
# If rounds differ in their flushes per transaction by more than this factor and by more than this number, other
# programs must have flushed the disk too.
_FLUSHES_APART_MAX = 1.2
_FLUSHES_APART_MIN = 0.1


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_one(self) -> bool:
        """Whether a ratio differs from 1 by more than chance."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True)
class ArmSpeed:
    """One arm, summed up over the counted rounds."""

    name: str
    # By metric, in the order of the measurement's metrics.
    figures: dict[str, Interval]
    ratios: dict[str, Interval]
    latencies: Latencies | None
    # Of the readers next to the writers. The percentiles are from a sample; the maximum is over all reads.
    reads: Latencies | None
    # None where they were not counted. Flushes and writes are the fewest of any round, because other programs add to
    # them; the others are medians.
    flush_per_transaction: float | None
    write_per_transaction: float | None
    # Bytes that the programs caused to be written to the disk, divided by the bytes of the keys and values they wrote.
    write_amplification: float | None
    # Disk space of all files at the end, divided by the bytes of the keys and values in them.
    space_amplification: float | None
    cpu_ms_per_transaction: float | None
    # Of the whole machine, its kernel included; None on a real disk, whose clock does not count them.
    instructions_per_transaction: float | None
    # From the trial that was watched; None if none was.
    space: Space | None
    # Counts of the workload's own, such as errors, each as the median of the trials.
    counts: dict[str, float]


@dataclass(frozen=True)
class FigureComparison:
    """A figure of a document, and ours for it."""

    figure: Figure
    ours: Interval

    @property
    def deviates(self) -> bool:
        """Whether our ratio differs from the document's by more than a third."""
        return abs(self.ours.value / self.figure.ratio - 1) > DEVIATION_MAX


def arm_speeds(speeds: Speeds) -> list[ArmSpeed]:
    """Return every arm in the order of the measurement."""
    return [_arm(speeds, name) for name in speeds.arms]


def figure_comparisons(speeds: Speeds) -> list[FigureComparison]:
    """Return the document's figures for which we measured a ratio, each with our ratio."""
    ours = [(figure, ratio(speeds, figure.arm, figure.base, figure.metric)) for figure in speeds.figures]
    return [FigureComparison(figure, measured) for figure, measured in ours if measured]


def sentences(speeds: Speeds) -> list[str]:
    """Return a sentence for each of the document's ratios from which ours differs by more than a third."""
    return [_sentence(speeds, comparison) for comparison in figure_comparisons(speeds) if comparison.deviates]


def noises(speeds: Speeds) -> list[str]:
    """Return the warnings that only the trials themselves can show."""
    lines = []
    for name in speeds.arms:
        trials = [
            trial
            for trial in speeds.counted_trials(name)
            if trial.disk and trial.disk.flush_count and trial.transactions
        ]
        shares = [(trial.disk.flush_count or 0) / trial.transactions for trial in trials if trial.disk]
        if shares and max(shares) > _FLUSHES_APART_MIN + _FLUSHES_APART_MAX * min(shares):
            lines.append(
                f"{name}: {min(shares):.3g} to {max(shares):.3g} flushes per transaction by round: other programs use "
                "this disk too"
            )
    return lines + [
        f"{name}: {_words(metric.name)} is 0 in some round, so nothing is compared with it"
        for name in dict.fromkeys(facts.base for facts in speeds.arms.values())
        for metric in speeds.metrics
        if 0 in [trial.metrics.get(metric.name) for trial in speeds.counted_trials(name)]
    ]


def ratio(speeds: Speeds, arm: str, base: str, metric: str) -> Interval | None:
    """Return the ratio of an arm's median to the base's median; None if the base is 0 in some round."""
    bases = _figures(speeds, base, metric)
    # A draw may consist of that round alone, and nothing can be divided by 0.
    return bootstrap(_figures(speeds, arm, metric), bases, speeds.seed) if all(bases) else None


def bootstrap(values: Sequence[float], bases: Sequence[float] | None, seed: int) -> Interval:
    """Return the median of the values, or its ratio to the median of the bases in the same rounds, with an interval."""
    import numpy as np

    draws = np.random.default_rng(seed).integers(len(values), size=(_RESAMPLES, len(values)))
    drawn = np.median(np.asarray(values, dtype=float)[draws], axis=1)
    value = statistics.median(values)
    if bases is not None:
        drawn = drawn / np.median(np.asarray(bases, dtype=float)[draws], axis=1)
        value /= statistics.median(bases)
    low, high = np.quantile(drawn, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))


def _arm(speeds: Speeds, name: str) -> ArmSpeed:
    trials = speeds.counted_trials(name)
    names = [metric.name for metric in speeds.metrics if all(metric.name in trial.metrics for trial in trials)]
    base = speeds.arms[name].base
    in_base = [metric for metric in names if all(metric in trial.metrics for trial in speeds.counted_trials(base))]
    return ArmSpeed(
        name=name,
        figures={metric: bootstrap(_figures(speeds, name, metric), None, speeds.seed) for metric in names},
        ratios={metric: interval for metric in in_base if (interval := ratio(speeds, name, base, metric))},
        latencies=latencies(latency_ns for trial in trials for latency_ns in trial.latencies_ns),
        reads=_of_reads([trial.reads for trial in trials if trial.reads]),
        flush_per_transaction=_fewest([_part(t.disk.flush_count if t.disk else None, t.transactions) for t in trials]),
        write_per_transaction=_fewest([_part(t.disk.write_count if t.disk else None, t.transactions) for t in trials]),
        write_amplification=_median([_part(t.process_bytes, t.user_bytes) for t in trials]),
        space_amplification=_median([_part(t.allocated_bytes, t.live_bytes) for t in trials]),
        cpu_ms_per_transaction=_median([_part(_ms(t.cpu_s), t.transactions) for t in trials]),
        instructions_per_transaction=_median([_instructions(speeds, trial) for trial in trials]),
        space=next((trial.space for trial in speeds.trials if trial.arm == name and trial.space), None),
        counts={
            key: statistics.median(trial.counts.get(key, 0) for trial in trials)
            for key in sorted({key for trial in trials for key in trial.counts})
        },
    )


def _instructions(speeds: Speeds, trial: Trial) -> float | None:
    per_s = speeds.virtual.get(INSTRUCTIONS)
    if per_s is None or trial.busy_ns is None:
        return None
    return _part(trial.busy_ns / 1e9 * int(per_s), trial.transactions)


def _ms(taken_s: float | None) -> float | None:
    return None if taken_s is None else taken_s * 1e3


def _of_reads(reads: Sequence[Reads]) -> Latencies | None:
    latency = latencies(taken_ns for read in reads for taken_ns in read.sample_ns)
    return replace(latency, max_ms=max(read.longest_ns for read in reads) / 1e6) if latency else None


def _figures(speeds: Speeds, arm: str, metric: str) -> list[float]:
    return [trial.metrics[metric] for trial in speeds.counted_trials(arm)]


def _part(amount: float | None, of: int | None) -> float | None:
    return None if amount is None or not of else amount / of


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _fewest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _sentence(speeds: Speeds, comparison: FigureComparison) -> str:
    figure, ours = comparison.figure, comparison.ours
    held = "; its figure lies within our interval" if ours.low <= figure.ratio <= ours.high else ""
    return (
        f"{speeds.document} line {figure.line}: {_words(figure.metric)} of {figure.arm} is {figure.ratio:.3g} of "
        f"{figure.base}, here {ours.value:.3g} ({ours.low:.3g} to {ours.high:.3g}){_explanation(speeds, figure)}{held}"
    )


def _explanation(speeds: Speeds, figure: Figure) -> str:
    """Return the counts that explain a metric: its parts if it counts bytes, else the flushes and writes."""
    arm, base = (_arm(speeds, name) for name in (figure.arm, figure.base))
    metric = next(metric for metric in speeds.metrics if metric.name == figure.metric)
    if metric.is_of_bytes:
        parts = [name for name in arm.counts.keys() & base.counts.keys() if name.startswith(_words(metric.name))]
        return "".join(f"; {name} {arm.counts[name]:.3g} against {base.counts[name]:.3g}" for name in sorted(parts))
    ours, theirs = _requests(arm), _requests(base)
    requests = f": {ours} per transaction against {theirs}" if ours and theirs else ""
    return f"{requests}, and a sync takes {speeds.probe.sync_s * 1e3:.2g} ms"


def _requests(arm: ArmSpeed) -> str:
    flushes, writes = arm.flush_per_transaction, arm.write_per_transaction
    return "" if flushes is None or writes is None else f"{flushes:.2g} flushes and {writes:.2g} writes"


def _words(metric: str) -> str:
    return metric.replace("_per_s", " per second").replace("_", " ")
