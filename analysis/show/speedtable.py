"""Print a measurement of speed as a table; all figures of a table are from one measurement on one disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table

from rig.analysis.judging.latencies import Latencies
from rig.analysis.judging.speed import ArmSpeed, Interval, arm_speeds, figure_comparisons, noises, sentences
from rig.speed.speeds import INSTRUCTIONS, RUNS_MIN, Speeds
from rig.speed.trials.replication import Metric

_MIB = 1 << 20
_GROUPS_MAX = 8


def print_speeds(speeds: Speeds, console: Console) -> None:
    """Print the arms, notes about the disk, and a document's own ratios next to ours."""
    arms = arm_speeds(speeds)
    for table in _of_arms(speeds, arms):
        console.print(table)
    for line in _notes(speeds, arms):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if speeds.figures:
        console.print(_of_document(speeds))
    for line in (*sentences(speeds), *(f"not measured: {what}: {why}" for what, why in speeds.absent.items())):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _of_arms(speeds: Speeds, arms: Sequence[ArmSpeed]) -> list[Table]:
    """Return tables of the arms' figures, latencies and costs; a single metric shares the table of the latencies."""
    figures, costs = _table("arm"), _table("arm")
    for metric in speeds.metrics:
        for heading in (metric.unit, "ratio"):
            figures.add_column(heading, justify="right", no_wrap=True)
    times = figures if (is_one := len(speeds.metrics) == 1) else _table("arm")
    has_reads = any(arm.reads for arm in arms)
    for heading in ("p50 ms", "p95", "p99", "max", *(("read\np50 ms", "p95", "p99", "max") if has_reads else ())):
        times.add_column(heading, justify="right")
    costed = _costs(speeds, arms)
    for heading in costed:
        costs.add_column(heading, justify="right")
    for arm in arms:
        is_base = speeds.arms[arm.name].base == arm.name
        shown = [word for metric in speeds.metrics for word in _figure(arm, metric, is_base=is_base)]
        taken = [*_latencies(arm.latencies), *(_latencies(arm.reads) if has_reads else ())]
        if is_one:
            figures.add_row(arm.name, *shown, *taken)
        else:
            figures.add_row(arm.name, *shown)
            times.add_row(arm.name, *taken)
        costs.add_row(arm.name, *(number(cost(arm)) for cost in costed.values()))
    return [figures, costs] if is_one else [figures, times, costs]


def _figure(arm: ArmSpeed, metric: Metric, *, is_base: bool) -> tuple[str, str]:
    return number(_value(arm.figures.get(metric.name))), "base" if is_base else _interval(arm.ratios.get(metric.name))


def _costs(speeds: Speeds, arms: Sequence[ArmSpeed]) -> dict[str, Callable[[ArmSpeed], float | None]]:
    """Return the columns of an arm's costs, by their headings."""
    columns: dict[str, Callable[[ArmSpeed], float | None]] = {
        "FLUSH\n/tx": lambda arm: arm.flush_per_transaction,
        "write\nampl.": lambda arm: arm.write_amplification,
    }
    if any(arm.space_amplification for arm in arms):
        columns["space\nampl."] = lambda arm: arm.space_amplification
    if INSTRUCTIONS in speeds.virtual:
        columns["instr.\n/tx"] = lambda arm: arm.instructions_per_transaction
    else:
        columns["CPU ms\n/tx"] = lambda arm: arm.cpu_ms_per_transaction
    if any(arm.space for arm in arms):
        columns["peak\nMiB"] = lambda arm: arm.space.peak_bytes / _MIB if arm.space else None
    return columns


def _latencies(latencies: Latencies | None) -> list[str]:
    return [
        number(each)
        for each in (
            [latencies.p50_ms, latencies.p95_ms, latencies.p99_ms, latencies.max_ms] if latencies else [None] * 4
        )
    ]


def _table(heading: str, title: str = "") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    table.add_column(heading, no_wrap=True)
    return table


def _notes(speeds: Speeds, arms: Iterable[ArmSpeed]) -> Iterable[str]:
    yield from _of_virtual(speeds) if speeds.virtual else _of_disk(speeds)
    for line in (*speeds.warnings, *noises(speeds)):
        yield f"warning: {line}"
    yield from _of_amplifications(arms)
    yield from _of_space(arms)
    for arm in arms:
        if shown := {name: count for name, count in arm.counts.items() if count}:
            yield f"{arm.name}: " + ", ".join(f"{name} {count:g}" for name, count in shown.items())


def _of_disk(speeds: Speeds) -> Iterable[str]:
    disks = ", ".join(filter(None, (" ".join(filter(None, (disk.name, disk.model))) for disk in speeds.disks)))
    yield (
        f"{speeds.repeats} rounds after a warm-up, seed {speeds.seed}; {speeds.filesystem} on "
        f"{disks or 'an unseen disk'}; a sync takes {speeds.probe.sync_s * 1e3:.2g} ms, at best "
        f"{speeds.probe.sync_s_min * 1e3:.2g} ms"
    )
    yield (
        "ratios of medians to the base above, with 95 % intervals; latencies of whole transactions, all rounds; "
        "flushes of the whole disk, the fewest of a round"
    )


def _of_amplifications(arms: Iterable[ArmSpeed]) -> Iterable[str]:
    """Yield the definition of each amplification in the table."""
    write = "bytes that the programs caused to be written over those of the keys and values that they wrote"
    space = "disk space of all files at the end over the bytes of the keys and values that are there"
    yield f"write amplification: {write}"
    if any(arm.space_amplification for arm in arms):
        yield f"space amplification: {space}"


def _of_space(arms: Iterable[ArmSpeed]) -> Iterable[str]:
    """Yield the largest files of each arm, or groups of them."""
    of_arms = {arm.name: arm.space.groups for arm in arms if arm.space}
    if of_arms:
        yield (
            "peak MiB of files, and of those together whose names differ only in numbers, looked at about every "
            "millisecond of the warm-up, so it is the least that they took:"
        )
    for name, groups in of_arms.items():
        largest = sorted((group for group in groups.items() if group[1]), key=lambda group: (-group[1], group[0]))
        more = f", and {len(largest) - _GROUPS_MAX} more" if len(largest) > _GROUPS_MAX else ""
        yield f"  {name}: " + ", ".join(f"{each} {number(size / _MIB)}" for each, size in largest[:_GROUPS_MAX]) + more


def _of_virtual(speeds: Speeds) -> Iterable[str]:
    machine, count = speeds.virtual, speeds.run_count
    yield (
        f"virtual: {machine['filesystem']} on the device {machine['device']} ({machine['delays']}); "
        f"{machine['clock']}; a sync takes {speeds.probe.sync_s * 1e3:.2g} ms; seed {speeds.seed}"
    )
    if count < RUNS_MIN:
        yield f"{count} counted run of each arm: whether runs agree takes --repeats {RUNS_MIN}"
    elif not speeds.spread:
        yield f"all {count} runs of each arm took the same time, to the last nanosecond"
    else:
        yield (
            f"the {count} runs of an arm differ by {speeds.spread:.1g} of their time; on a quiet host they would not "
            "(a race in QEMU, see docs/explanation/how-it-works.md)"
        )


def _of_document(speeds: Speeds) -> Table:
    table = _table("row", f"{speeds.experiment}: {speeds.document}")
    for heading in ("metric", "line"):
        table.add_column(heading)
    for heading in ("its ratio", "ours"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for comparison in figure_comparisons(speeds):
        figure = comparison.figure
        table.add_row(
            f"{figure.arm} / {figure.base}", figure.metric, str(figure.line), number(figure.ratio),
            _interval(comparison.ours), "differs" if comparison.deviates else "",
        )  # fmt: skip
    return table


def number(value: float | None, digits: int = 3) -> str:
    """Return a figure with `digits` significant digits, above 1 never with an exponent; `-` for None."""
    if value is None:
        return "-"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}" if value else "0"


def _interval(interval: Interval | None) -> str:
    return f"{number(interval.value, 2)} ({number(interval.low, 2)} to {number(interval.high, 2)})" if interval else "-"


def _value(interval: Interval | None) -> float | None:
    return interval.value if interval else None
