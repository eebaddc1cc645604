"""What ends a run: its files, its table, its exit code; and the command that makes them again for one or more runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import RigError, StoreError, UsageError
from rig.front import options
from rig.front.rundirs import REPORT, RUNS, newest_run

if TYPE_CHECKING:
    from rig.analysis.judging.outcome import Summary
    from rig.store import Run

_INCONCLUSIVE = 3


@click.command()
@options.run_dirs(help="Run directory [default: the newest in runs/]; may be repeated, with --out.")
@options.out(help="Where the report of several runs is written.")
def report(*, run_dirs: tuple[Path, ...], out: Path | None) -> None:
    """Print the table of a run and write its report again, or write one report of several runs.

    Each run is judged with its own controls. If several runs have a scenario on the same device, the run named last
    counts.
    """
    from rig.planning import matrix
    from rig.store import Run

    if (len(run_dirs) > 1) is not (out is not None):
        raise UsageError("--out goes with several --run-dir; the report of one run is in its directory")
    runs = [Run.open(folder) for folder in run_dirs or [newest_run()]]
    if out:
        sys.exit(_conclude_together(runs, out))
    sys.exit(conclude(runs[0], matrix.profile(runs[0].profile).exposure_min))


def conclude(target: Run, exposure_min: int) -> int:
    """Write the Parquet file and the report, print the table, and return the exit code."""
    # Files first: the reader of the table may close the pipe halfway.
    summary, damaged = written(target, exposure_min)
    return _said(summary, target.failures(), damaged, target.folder / REPORT)


def written(target: Run, exposure_min: int) -> tuple[Summary, list[RigError]]:
    """Write the Parquet file and the report; return the summary, and an error for each damaged file."""
    from rig.analysis.judging.outcome import summarise
    from rig.analysis.show.report import write_report
    from rig.speed.speeds import beside
    from rig.store import write_parquet

    results, damaged = target.results()
    if not results:
        raise StoreError(f"{target.folder} holds no measured scenario")
    summary = summarise(results, exposure_min, _named(target))
    write_parquet(results, target.folder / "verdicts.parquet")
    run_info = {"run": target.folder.name, "profile": target.profile}
    write_report(summary, run_info, target.folder / REPORT, beside(target.folder))
    return summary, damaged


def _conclude_together(runs: Sequence[Run], out: Path) -> int:
    """Write one report of several runs, print their table, and return the exit code."""
    from rig.analysis.judging.outcome import summarise, together
    from rig.analysis.show.report import write_report
    from rig.planning import matrix

    summaries: list[Summary] = []
    failures: dict[str, str] = {}
    damaged: list[RigError] = []
    for run in runs:
        results, of_run = run.results()
        summaries.append(summarise(results, matrix.profile(run.profile).exposure_min, _named(run)))
        failures |= run.failures()
        damaged += of_run
    summary = together(summaries)
    if not summary.rows:
        raise StoreError("these runs hold no measured scenario")
    measured = {row.outcome.scenario.id for row in summary.rows}
    failures = {name: message for name, message in failures.items() if name not in measured}
    profiles = ", ".join(sorted({run.profile for run in runs}))
    names = ", ".join(run.folder.name for run in runs)
    write_report(summary, {"runs": names, "profile": profiles}, out)
    return _said(summary, failures, damaged, out)


def _said(summary: Summary, failures: Mapping[str, str], damaged: Sequence[RigError], path: Path) -> int:
    from rig.analysis.show.table import print_table
    from rig.front.terminal import standard_output

    print_table(summary, standard_output())
    for scenario, message in failures.items():
        click.echo(f"not measured {scenario}: {message}", err=True)
    for error in damaged:
        click.echo(f"damaged: {error}; to judge it again, repeat the command", err=True)
    click.echo(f"report: {path}")
    return summary.exit_code or (_INCONCLUSIVE if failures or damaged else 0)


def _named(run: Run) -> str:
    """Return how a command names a run; a pasted one searches runs/ by default."""
    return "" if run.folder.parent == RUNS else str(run.folder)
