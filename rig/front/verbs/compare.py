"""The command `rig compare`: two runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import StoreError
from rig.front import options

if TYPE_CHECKING:
    from rig.analysis.history.comparison import ComparedRun

_FORMATS = ("text", "markdown", "json")
_INCONCLUSIVE = 3


@click.command()
@click.argument("before", type=click.Path(path_type=Path, file_okay=False))
@click.argument("after", type=click.Path(path_type=Path, file_okay=False))
@options.output_format(type=click.Choice(_FORMATS))
def compare(*, before: Path, after: Path, wanted: str) -> None:
    """Show two runs side by side: results, losses, exposure, speed, builds, and what a difference rests on.

    BEFORE and AFTER are run directories. Exit code 1 says that something got worse, 3 that something has no answer.
    """
    from rig.analysis.history import comparisontext
    from rig.analysis.history.comparison import comparison
    from rig.front.outputs import print_lines
    from rig.front.terminal import standard_output

    compared_runs = comparison(_side(before), _side(after))
    if wanted == "text":
        console = standard_output()
        console.print(comparisontext.table(compared_runs))
        print_lines(comparisontext.notes(compared_runs), console)
    else:
        click.echo(
            comparisontext.markdown(compared_runs) if wanted == "markdown" else comparisontext.as_json(compared_runs),
            nl=False,
        )
    sys.exit(compared_runs.changes.exit_code)


def _side(folder: Path) -> ComparedRun:
    """Return one of the runs; raise StoreError if a file of it is damaged, because the difference might be there."""
    from rig.analysis.history.comparison import ComparedRun
    from rig.analysis.judging.outcome import summarise
    from rig.front.verbs.reports import extent_of
    from rig.planning import matrix
    from rig.store import Run

    run = Run.open(folder)
    results, damaged = run.results()
    if damaged:
        raise StoreError(f"{damaged[0]}; to judge it again, repeat the command that made the run")
    # Commands name the run even below runs/, where the newest run with the scenario might be the other one.
    summary = summarise(results, matrix.profile(run.profile).exposure_min, str(folder))
    return ComparedRun(folder.name, extent_of(run), summary, run.failures(), str(folder))
