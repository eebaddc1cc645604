"""`rig advise`: which setting to take, from stored results alone.

Exit codes: 0 advised, 1 nothing meets the wishes, 2 usage, 3 the evidence does not support an answer.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import UsageError
from rig.front import options
from rig.front.rundirs import finished_runs

if TYPE_CHECKING:
    from rig.analysis.advice.advice import Advice, Assessment
    from rig.analysis.advice.candidates import Piece

_NOTHING_MEETS, _INCONCLUSIVE = 1, 3
_MANY = 50
_FORMATS = ("text", "markdown", "html", "json")


@click.command()
@click.option("--max-lost", type=click.IntRange(min=0), help="The most acknowledged transactions that may be lost.")
@click.option(
    "--max-lost-seconds",
    type=options.Finite(min=0),
    help="The greatest age of a lost transaction, in seconds.",
)
@click.option(
    "--no-corruption", is_flag=True, help="The database may not come back damaged. Every other wish includes this one."
)
@options.device(help="The disk that the settings were measured on.")
@options.fs(help="The file system [default: every one that was measured].")
@click.option("--engine", help="The engine [default: every one that was measured].")
@options.fault(help="What happens; may be repeated [default: the power faults].")
@click.option(
    "--exposure",
    type=click.IntRange(min=1),
    help="Distinct file contents needed for each fault [default: the profile's].",
)
@options.run_dirs(help="Run directory; may be repeated [default: every finished run in runs/].")
@options.output_format(type=click.Choice(_FORMATS))
def advise(
    *, max_lost: int | None, max_lost_seconds: float | None, no_corruption: bool, device: str, filesystem: str | None,
    engine: str | None, faults: tuple[str, ...], exposure: int | None, run_dirs: tuple[Path, ...], wanted: str,
) -> None:  # fmt: skip
    """Say which setting to take, how fast it is, and on what evidence; nothing is measured.

    Without a wish: nothing acknowledged may be lost, and nothing damaged.
    """
    from rig.analysis.advice.advice import Wishes
    from rig.analysis.advice.advice import advise as advised
    from rig.planning import matrix

    asked = tuple(dict.fromkeys(faults)) or matrix.DEFAULT_FAULTS
    _require_known(device, filesystem, engine, asked)
    is_silent = max_lost is None and max_lost_seconds is None and not no_corruption
    wishes = Wishes(0 if is_silent else max_lost, max_lost_seconds, is_silent or no_corruption, exposure)
    folders = run_dirs or tuple(finished_runs())
    pieces = [piece for folder in folders for piece in _pieces(folder, device, filesystem, engine, asked)]
    advice = advised(pieces, wishes, asked)
    commands = _commands(advice, device, filesystem, engine)
    _show(advice, commands, wanted)
    sys.exit(0 if advice.best else _INCONCLUSIVE if advice.is_refused else _NOTHING_MEETS)


def _require_known(device: str, filesystem: str | None, engine: str | None, faults: Sequence[str]) -> None:
    """Raise UsageError for the first unknown word, or for an engine whose settings are not alternatives."""
    from rig.contract.devices import device_named
    from rig.contract.faultspecs import FAULTS
    from rig.engines import engines, find_engine
    from rig.filesystems import filesystems
    from rig.planning.matrix import choices

    device_named(device)
    asked = [("fault", fault, FAULTS) for fault in faults]
    if filesystem:
        asked.append(("file system", filesystem, tuple(filesystem.word for filesystem in filesystems())))
    if engine:
        asked.append(("engine", engine, tuple(engine.name for engine in engines(given=True))))
    for what, word, known in asked:
        if word not in known:
            raise UsageError(f"unknown {what} {word!r}; {choices(word, known)}")
    named = find_engine(engine) if engine else None
    if named and not (named.spec.are_alternatives and not named.spec.needs_build):
        raise UsageError(f"the settings of {engine} do different things, so there is nothing to choose between")


def _pieces(
    folder: Path, device: str, filesystem: str | None, engine: str | None, faults: Sequence[str]
) -> Iterator[Piece]:
    """Yield the scenarios of a run that fit, judged with all of their groups."""
    from rig.analysis.advice.candidates import Piece
    from rig.analysis.judging.controls import is_mutant
    from rig.analysis.judging.outcome import summarise
    from rig.engines import find_engine
    from rig.planning import matrix
    from rig.store import Run

    target = Run.open(folder)
    names = [
        path.parent.name
        for path in sorted(target.folder.glob("scenarios/*/plan.json"))
        if _fits(path.parent.name, filesystem, engine, faults)
    ]
    if len(names) > _MANY:
        click.echo(f"reading {len(names)} scenarios of {folder}", err=True)
    results, damaged = target.results(names)
    for error in damaged:
        click.echo(f"damaged: {error}", err=True)
    for name, message in target.failures().items():
        if _fits(name, filesystem, engine, faults):
            click.echo(f"not measured {name}: {message}", err=True)
    profile = target.profile
    summary = summarise(
        [result for result in results if not is_mutant(result.scenario)], matrix.profile(profile).exposure_min
    )
    for row in summary.rows:
        scenario = row.outcome.scenario
        spec = named.spec if (named := find_engine(scenario.engine)) else None
        if scenario.device.name == device and not (spec and spec.needs_build):
            yield Piece(str(target.folder), profile, row)


def _fits(scenario_id: str, filesystem: str | None, engine: str | None, faults: Sequence[str]) -> bool:
    """Return whether a scenario has this file system and engine, if they are named, and one of these faults."""
    # A folder that is no scenario may have a name of any form.
    of_engine, _, rest = scenario_id.partition("-")
    of_filesystem = rest.partition("-")[0]
    is_of_both = engine in {None, of_engine} and filesystem in {None, of_filesystem}
    return is_of_both and scenario_id.endswith(tuple(f"_{fault}" for fault in faults))


def _show(advice: Advice, commands: Sequence[str], wanted: str) -> None:
    from rig.analysis.advice import advicetext

    if wanted == "json":
        click.echo(json.dumps(advicetext.as_data(advice, commands), indent=1))
    elif wanted == "markdown":
        click.echo(advicetext.markdown(advice, commands), nl=False)
    elif wanted == "html":
        click.echo(advicetext.page_html(advice, commands), nl=False)
    else:
        _print(advice, commands)


def _print(advice: Advice, commands: Sequence[str]) -> None:
    """Print the advice for a terminal: the answer first, the table of all settings below."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rig.analysis.advice import advicetext
    from rig.front.terminal import standard_output

    console = standard_output()
    console.print(Text(advicetext.headline(advice), style="bold"), soft_wrap=True)
    for title, lines in advicetext.paragraphs(advice):
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if advice.assessed:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for heading in advicetext.HEADINGS:
            table.add_column(heading)
        for row in advicetext.rows(advice):
            table.add_row(*map(Text, row))
        console.print(table)
        console.print(Text(advicetext.CAPTION))
    if commands:
        console.print(Text("to get the evidence", style="bold"))
        for command in commands:
            console.print(Text(f"  {command}"), soft_wrap=True)


def _commands(advice: Advice, device: str, filesystem: str | None, engine: str | None) -> list[str]:
    """Return the commands that would settle the unproven candidates that could be the answer."""
    from rig.engines import engines
    from rig.filesystems import default_filesystems

    if not advice.assessed:
        name = engine or next(default.name for default in engines() if default.spec.is_default)
        word = filesystem or default_filesystems()[0].word
        ids = [f"{name}-{word}-*_{fault}" for fault in advice.faults]
        return [shlex.join(["rig", "run", *ids, "--device", device])]
    wanted: dict[tuple[str, ...], set[str]] = {}
    for assessment in advice.unproven:
        wanted.setdefault(_options(assessment, advice.wishes.exposure_min or 0), set()).update(_ids(assessment))
    return [shlex.join(["rig", "run", *sorted(ids), *options]) for options, ids in sorted(wanted.items())]


def _ids(assessment: Assessment) -> list[str]:
    candidate = assessment.candidate
    faults = dict.fromkeys(reason.fault for reason in assessment.reasons)
    return [f"{candidate.engine}-{candidate.filesystem}-{candidate.name}_{fault}" for fault in faults]


def _options(assessment: Assessment, exposure_min: int) -> tuple[str, ...]:
    """Return the options to measure a candidate with; use a closer profile if the same run again would not suffice."""
    from rig.planning.matrix import PROFILES

    showings = {showing.fault: showing for showing in assessment.candidate.showings}
    pieces = [piece for showing in showings.values() if (piece := showing.piece)]
    names = list(PROFILES)
    ranks = [names.index(piece.profile) for piece in pieces if piece.profile in PROFILES]
    used = max(ranks, default=names.index("quick"))
    is_missing = all(
        showings[reason.fault].piece is None or "was not run" in reason.text for reason in assessment.reasons
    )
    seed = max((piece.row.outcome.measured.recording.seed for piece in pieces), default=1)
    if not is_missing and used == len(names) - 1:
        seed += 1
    elif not is_missing:
        used += 1
    while PROFILES[names[used]].exposure_min < exposure_min and used < len(names) - 1:
        used += 1
    seeds = ["--seed", str(seed)] if seed != 1 else []
    return ("--profile", names[used], "--device", assessment.candidate.device, *seeds, *_tuning_options(pieces))


def _tuning_options(pieces: Sequence[Piece]) -> list[str]:
    """Return the options that give a run the tuning, the pause and the build that these scenarios have."""
    from rig.analysis.advice.candidates import differing
    from rig.contract.scenario import WorkloadSpec

    if not pieces:
        return []
    scenario = pieces[0].row.outcome.scenario
    words = differing(scenario)
    options = [part for name, value in words.items() if name != "library" for part in ("--tune", f"{name}={value}")]
    if "library" in words:
        options += ["--library", pieces[0].row.outcome.measured.recording.settings.get("library", "WHICH")]
    pause_ms = scenario.workload.think_ms
    return options + (["--pause-ms", str(pause_ms)] if pause_ms != WorkloadSpec.think_ms else [])
