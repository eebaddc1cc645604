"""What ends a run: its files, its table, its exit code; and the command that makes them again for one or more runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import RigError, StoreError, UsageError
from rig.front import options
from rig.front.explaining import tellings
from rig.front.outputs import Outputs, RunSummary, not_measured, output_options
from rig.front.rundirs import REPORT, begin_of, name_of_run, newest_run
from rig.host.files import atomic_write

if TYPE_CHECKING:
    from rig.analysis.explain.story import Telling
    from rig.analysis.judging.outcome import Summary
    from rig.shards import Shard
    from rig.store import Run

_INCONCLUSIVE = 3


@click.command()
@options.run_dirs(help="Run directory [default: the newest in runs/]; may be repeated, with --out.")
@options.out(help="Where the report of several runs is written.")
@output_options
def report(*, run_dirs: tuple[Path, ...], out: Path | None, outputs: Outputs) -> None:
    """Print the table of a run and write its report again, or write one report of several runs.

    Each run is judged with its own controls. If several runs have a scenario on the same device, the run named last
    counts.
    """
    from rig.planning import matrix
    from rig.store import SHARD, Run

    if (len(run_dirs) > 1) is not (out is not None):
        raise UsageError("--out goes with several --run-dir; the report of one run is in its directory")
    outputs.check()
    runs = [Run.open(folder) for folder in run_dirs or [newest_run()]]
    for run in runs:
        if SHARD in run.definition:
            raise UsageError(f"{run.folder} is shard {run.definition[SHARD]} of a run: `rig merge` judges all shards")
    if out:
        sys.exit(_conclude_together(runs, out, outputs))
    sys.exit(conclude(runs[0], matrix.profile(runs[0].profile).exposure_min, outputs))


@click.command()
@options.shard_dirs()
@options.run_dir(required=True, help="The directory of the merged run.")
@output_options
def merge(*, shards: tuple[Path, ...], run_dir: Path, outputs: Outputs) -> None:
    """Put the runs of `rig run --shard` together into one run, and judge it as one.

    A control counts for the scenarios of all shards. What no shard has measured is inconclusive.
    """
    from rig.planning import matrix
    from rig.shards import merge as merge_runs
    from rig.store import Run

    outputs.check()
    merged = merge_runs([Run.open(folder) for folder in shards], run_dir)
    sys.exit(conclude(merged, matrix.profile(merged.profile).exposure_min, outputs))


def conclude(target: Run, exposure_min: int, outputs: Outputs) -> int:
    """Write the Parquet file, the report and what else is wanted, print the table, and return the exit code."""
    summary, damaged = write(target, exposure_min)
    failures, page = target.failures(), target.folder / REPORT
    began, name = begin_of(target.folder)
    run = RunSummary(
        name, began, extent_of(target), summary, failures, damaged, page, target.retries(), tellings(target),
        partial(_is_asked, target.definition.get("patterns")),
    )  # fmt: skip
    return outputs.end(run)


def conclude_shard(target: Run, shard: Shard) -> int:
    """Write the files of a shard, say what to do with it, and return the exit code; `rig merge` judges it."""
    results, damaged = target.results()
    failures = target.failures()
    for result in results:
        if len(result.verdicts) < result.plan.state_count:
            counts = f"{len(result.verdicts)} of {result.plan.state_count}"
            failures[result.scenario.id] = f"only {counts} planned states were judged"
    if results:
        write(target, 0)
    for line in (*not_measured(failures), *map(str, damaged)):
        click.echo(line, err=True)
    click.echo(f"shard {shard}: {len(results)} scenarios measured in {target.folder}; `rig merge` judges all shards")
    return _INCONCLUSIVE if failures or damaged else 0


def _is_asked(patterns: Sequence[str] | None, name: str) -> bool:
    """Return whether a run with these patterns, or without any for all scenarios, should have an entry's scenario."""
    from rig.planning.matrix import matches

    scenario_id = name.partition(" ")[0]
    return patterns is not None and (not patterns or any(matches(pattern, scenario_id) for pattern in patterns))


def write(target: Run, exposure_min: int) -> tuple[Summary, list[RigError]]:
    """Write the Parquet file and the report; return the summary, and an error for each damaged file."""
    from rig.analysis.judging.outcome import summarise
    from rig.analysis.show.report import write_report
    from rig.speed.speeds import beside
    from rig.store import write_parquet

    results, damaged = target.results()
    if not results and not target.failures():
        raise StoreError(f"{target.folder} holds no measured scenario")
    summary = summarise(results, exposure_min, name_of_run(target.folder))
    write_parquet(results, target.folder / "verdicts.parquet")
    run_info = {"run": target.folder.name, "profile": target.profile}
    pages = write_pages(target, summary, target.folder)
    out, speeds = target.folder / REPORT, beside(target.folder)
    write_report(summary, run_info, out, speeds, tellings=tellings(target), why_pages=pages)
    return summary, damaged


def write_pages(target: Run, summary: Summary, folder: Path) -> dict[str, str]:
    """Write a page for each explanation of a broken promise; return scenario -> its page, seen from a folder."""
    from rig.analysis.explain.story import page
    from rig.analysis.show.broken import breaks

    pages = {}
    for each in breaks(summary, tellings(target)):
        if each.telling and each.telling.story:
            scenario_id = each.row.outcome.scenario.id
            path = target.explanation_page(scenario_id)
            atomic_write(path, page(each.telling.story, each.replay_line).encode())
            pages[scenario_id] = os.path.relpath(path, folder)
    return pages


def _conclude_together(runs: Sequence[Run], out: Path, outputs: Outputs) -> int:
    """Write one report of several runs, print their table, and return the exit code."""
    from rig.analysis.judging.outcome import summarise, together
    from rig.analysis.show.report import write_report
    from rig.planning import matrix

    summaries: list[Summary] = []
    failures: dict[tuple[str, str], str] = {}
    every_telling: dict[str, Telling] = {}
    pages: dict[str, str] = {}
    damaged: list[RigError] = []
    for run in runs:
        results, of_run = run.results()
        summaries.append(summarise(results, matrix.profile(run.profile).exposure_min, name_of_run(run.folder)))
        # What a later run has measured is not missing.
        measured = {(row.outcome.scenario.id, row.outcome.scenario.device.name) for row in summaries[-1].rows}
        failures = {place: why for place, why in failures.items() if place not in measured}
        failures |= {(name, _device_of(run, name)): why for name, why in run.failures().items()}
        damaged += of_run
        every_telling |= tellings(run)
        pages |= write_pages(run, summaries[-1], out.parent)
    summary = together(summaries)
    if not summary.rows:
        raise StoreError("these runs hold no measured scenario")
    profiles = ", ".join(sorted({run.profile for run in runs}))
    names = ", ".join(run.folder.name for run in runs)
    write_report(summary, {"runs": names, "profile": profiles}, out, tellings=every_telling, why_pages=pages)
    extents = ", ".join(sorted({extent_of(run) for run in runs}))
    began = max(begin_of(run.folder)[0] for run in runs)
    missing = {f"{name} on {device}" if device else name: why for (name, device), why in failures.items()}
    return outputs.end(RunSummary(names, began, extents, summary, missing, damaged, out, tellings=every_telling))


def _device_of(run: Run, scenario_id: str) -> str:
    """Return the device on which a run should have measured a scenario; empty if its manifest does not say."""
    from rig.contract.devices import current_name

    orders = run.definition.get("orders", {}).get(scenario_id)
    return current_name(orders["device"]["name"]) if orders else str(run.definition.get("device", ""))


def extent_of(run: Run) -> str:
    """Return how closely a run looked: the profile, and the number of states if another was asked for."""
    from rig.planning import matrix

    states = run.definition.get("states")
    is_plain = states in {None, matrix.profile(run.profile).states_max}
    return run.profile if is_plain else f"{run.profile}, {states} states"
