"""The command `rig claims`: what documents say about durability and speed, measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.front import options
from rig.front.rundirs import RUNS, runs

if TYPE_CHECKING:
    from rig.analysis.documents.claim import Document
    from rig.analysis.documents.crash import Evidence
    from rig.analysis.documents.measuring import InGuest
    from rig.machines.pool import Clones
    from rig.planning.matrix import Profile

_INCONCLUSIVE = 3


@click.command()
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@options.profile(help="quick judges claims about loss from a stored run; nightly or exhaustive measure them first.")
@options.run_dir(help="Run directory for claims about loss [default: the newest in runs/].")
@click.option(
    "--speed", "speeds", type=click.Path(path_type=Path, dir_okay=False), multiple=True,
    help="What `rig speed --json FILE` wrote, for claims about speed; may be repeated.",
)  # fmt: skip
@options.out(help="Report [default: claims.html in the run directory].")
def claims(
    *, names: tuple[str, ...], profile: str, run_dir: Path | None, speeds: tuple[Path, ...], out: Path | None
) -> None:
    """Check what the documents claim: carry out the small experiments, and judge the rest from what is stored.

    CLAIM is an id such as S1-16 or a document such as S1; without any, all claims are checked. Exit code 3: some claim
    is not measured.
    """
    from rig.analysis.documents.claim import ClaimVerdict
    from rig.analysis.documents.loader import documents
    from rig.analysis.documents.measuring import measure, select
    from rig.analysis.documents.page import write_page
    from rig.analysis.documents.table import print_answers
    from rig.front.progress import show
    from rig.front.terminal import standard_output
    from rig.planning import matrix
    from rig.speed.speeds import load

    wanted, closely = select(documents(), names), matrix.profile(profile)
    stored = [load(path) for path in speeds]
    folder = _measure(wanted, closely, run_dir) if closely.is_whole else _evidence_dir(run_dir)
    with show("carrying out experiments", "experiments carried out") as progress, ExitStack() as stack:
        progress.says(f"claims about loss are judged from {folder}" if folder else "there is no run directory")
        answered = measure(wanted, _evidence(folder, wanted), stored, progress, _in_guest(stack, progress.says))
    target = out or (folder or RUNS) / "claims.html"
    write_page(answered, stored, _facts(folder, speeds), target)
    print_answers(answered, standard_output())
    click.echo(f"report: {target}")
    answers = [answer for document in answered for answer in document.answers]
    sys.exit(_INCONCLUSIVE if any(answer.verdict is ClaimVerdict.NOT_MEASURED for answer in answers) else 0)


def _measure(wanted: Sequence[Document], closely: Profile, run_dir: Path | None) -> Path | None:
    """Measure the scenarios that the claims need, and the controls of their groups; return the run directory."""
    from rig.analysis.documents.measuring import scenario_ids
    from rig.front import selection
    from rig.front.measuring import measure
    from rig.front.verbs.doctor import require_runs
    from rig.planning import matrix

    ids = scenario_ids(wanted)
    if not ids:
        return run_dir
    require_runs(run_dir or RUNS.absolute())
    scenarios = selection.with_controls(matrix.select(ids))
    return measure(matrix.configure(scenarios, closely), closely, run_dir).folder


def _evidence_dir(run_dir: Path | None) -> Path | None:
    """Return the run directory that holds the evidence, or None; raise StoreError if the named folder is no run."""
    from rig.store import Run

    if run_dir:
        Run.open(run_dir)
    return run_dir or next(iter(runs()), None)


def _in_guest(stack: ExitStack, says: Callable[[str], None]) -> InGuest:
    """Return a function that runs probes in machines, which are made for the first probe."""
    made: list[Clones] = []

    def carry_out(filesystem: str, name: str) -> Mapping[str, int]:
        from rig.analysis.documents import guestprobes
        from rig.campaign.fileprobe import figures
        from rig.machines.guests import guests
        from rig.planning import matrix

        if not made:
            scenario = matrix.select(["*-wal_full_powercut"])[0]
            made.append(stack.enter_context(guests([], says)).verifier_of(scenario))
        return figures(made[0], filesystem, name, guestprobes.__name__)

    return carry_out


def _evidence(folder: Path | None, wanted: Sequence[Document]) -> Evidence:
    from rig.analysis.documents.crash import Evidence, evidence_of
    from rig.analysis.documents.measuring import scenario_ids

    ids = scenario_ids(wanted)
    return evidence_of(folder, ids, RUNS) if folder and ids else Evidence()


def _facts(folder: Path | None, speeds: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the evidence that the answers rest on."""
    from rig.analysis.documents.probes import library

    return [
        ("claims about loss", str(folder) if folder else "no run directory"),
        ("claims about speed", ", ".join(map(str, speeds)) or "no measurement"),
        ("probes", library()),
    ]
