"""A user's program: the options that name it, and the scenarios that measure it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rig.contract.errors import UsageError
from rig.contract.orders import Processor, Shim
from rig.contract.scenario import CLIENTS, COMPANY_FAULTS, NEIGHBOUR, OWN_WORKLOAD, WRITEBACK, name_of
from rig.front import options

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.images.recipes import Needs

DEFAULT_PROMISE, DEFAULT_FAULT = "durable", "powercut"
NEIGHBOURS = {"sync": NEIGHBOUR, "writeback": WRITEBACK}
CLIENTS_MAX = 16
WORKLOADS = (OWN_WORKLOAD, "creation")


@dataclass(frozen=True)
class Chosen:
    """What to measure of a program."""

    build: Library
    scenarios: list[Scenario]
    # A line naming the controls that were added; empty if none were.
    added: str


def program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a program to a command."""
    for option in (
        click.option(
            "--promise",
            help="What --program must keep: durable, prefix or atomic, or several with commas between them "
            f"[default: {DEFAULT_PROMISE}].",
        ),
        options.fault(help=f"A fault for --program; may be repeated [default: {DEFAULT_FAULT}]."),
        options.filesystems(help="A file system for --program; may be repeated."),
        click.option(
            "--env",
            "environment",
            multiple=True,
            metavar="NAME=VALUE",
            help="Start --program with this variable; may be repeated.",
        ),
        click.option(
            "--arg",
            "arguments",
            multiple=True,
            metavar="WORD",
            help="Start --program with this word after all others; may be repeated.",
        ),
        options.transactions(
            default=None,
            show_default=False,
            help="How many transactions --program carries out [default: as many as the profile says].",
        ),
        click.option("--focus", metavar="STEP", help="Cut --program only in the steps that it gives this name."),
        click.option(
            "--workload",
            type=click.Choice(WORKLOADS),
            help="Cut --program only at work (own), or only while it makes its data [default: both].",
        ),
        click.option(
            "--neighbour",
            type=click.Choice(tuple(NEIGHBOURS)),
            help="Have another process sync a file of its own, or need so much memory that pages are written back.",
        ),
        click.option(
            "--clients",
            type=int,
            help=f"How many transactions of --program may be in flight at a time, at most {CLIENTS_MAX} [default: 1].",
        ),
        options.image(help="What --program needs in the guest: a file RECIPE.toml."),
        click.option(
            "--program", metavar="PATH", help="Your own program, instead of scenarios: docs/how-to/your-own-program.md."
        ),
    ):
        command = option(command)
    return command


dry_run = partial(
    click.option, "--dry-run", is_flag=True,
    help="Carry out --program once in the guest, without a cut, and say what it did and what is wrong.",
)  # fmt: skip


def rehearse(program: str | None, **of_program: Any) -> int:
    """Carry out a program without a cut, and return the exit code; raise UsageError if none is named."""
    from rig.filesystems import default_filesystems
    from rig.front.rehearsal import dry_run as carry_out

    if not program:
        raise UsageError("--dry-run carries out a program: name it with --program")
    # It runs on a tmpfs, whatever file system is named.
    of_program["filesystems"] = of_program["filesystems"] or (default_filesystems()[0].word,)
    chosen = select(program, controls=False, **of_program)
    return carry_out(chosen.scenarios[0], chosen.build, click.echo)


def select(
    path: str,
    filesystems: str | Sequence[str] | None,
    faults: Sequence[str],
    promise: str | None,
    image: str | Path | None = None,
    *,
    controls: bool = True,
    workload: str | None = None,
    focus: str | None = None,
    neighbour: str | None = None,
    clients: int | None = None,
    environment: Sequence[str] = (),
    arguments: Sequence[str] = (),
    is_whole: bool = False,
) -> Chosen:
    """Return a program and the scenarios that measure it; raise UsageError naming the choices.

    Without a workload, the faults that most people mean also cut the program while it is made, unless it has a
    neighbour or several clients. With a focus, only steps of this name are cut. A whole measurement also has power cuts
    of the program while its pages are written back early, where that can be measured.
    """
    from rig.contract.faultspecs import SPECS
    from rig.engines import engine_named
    from rig.engines.program.spec import SPEC
    from rig.filesystems import default_filesystems, filesystem_named
    from rig.front import selection
    from rig.images import recipes
    from rig.planning import matrix, tunings

    promises = {"promise": _spelling(promise or DEFAULT_PROMISE)}
    engine = engine_named(SPEC.name)
    offered = {scenario.id: scenario for scenario in matrix.scenarios_of([engine])}
    tuned, client_count = _company(neighbour, clients)
    asked = []
    words = [filesystems] if isinstance(filesystems, str) else filesystems or [default_filesystems()[0].word]
    for filesystem, fault in itertools.product(map(filesystem_named, words), faults or (DEFAULT_FAULT,)):
        matrix.require_measurable(engine, filesystem, fault)
        if focus and (SPECS[fault].cuts_recovery or not SPECS[fault].model or workload not in {None, OWN_WORKLOAD}):
            raise UsageError(f"--focus is for faults that cut what is recorded, and for no creation; not for {fault}")
        is_made_too = fault in matrix.DEFAULT_FAULTS and not focus and not tuned
        workloads = [workload] if workload else [OWN_WORKLOAD, *(SPEC.own_workloads if is_made_too else ())]
        names = [name_of(promises, each, tuned=tuned) for each in workloads]
        asked += [_scenario_named(offered, f"{SPEC.name}-{filesystem.word}-{name}_{fault}") for name in names]
        if is_whole and is_made_too and workload is None and fault == DEFAULT_FAULT:
            early = f"{SPEC.name}-{filesystem.word}-{name_of(promises, tuned=WRITEBACK)}_{fault}"
            asked += [offered[early]] if early in offered else []
    measured = selection.with_controls(asked) if controls else asked
    if client_count > 1:
        asked, measured = ([tunings.with_clients(each, client_count) for each in group] for group in (asked, measured))
    added = selection.added_line(asked, measured)
    needs = recipes.of_file(Path(image)) if image else None
    build = replace(_build_of(path, image), image=needs.name if needs else "", client_count=client_count)
    tuning = _tuning(Path(path).name, needs, environment, arguments)
    processor = needs.processor if needs else Processor.PLAIN
    measured = [replace(scenario, tuning={**scenario.tuning, **tuning}, processor=processor) for scenario in measured]
    if focus:
        # A program without syncs leaves few states to cut inside a step, and is cut everywhere.
        measured = [scenario if scenario.shim != Shim.NONE else replace(scenario, focus=focus) for scenario in measured]
    return Chosen(build, measured, added)


def _spelling(promise: str) -> str:
    """Return promises as ids spell them; raise UsageError for an unknown one."""
    from rig.engines.program.promises import PROMISES, Promised, spelling_of

    if (spelling := spelling_of(promise)) not in PROMISES:
        raise UsageError(f"unknown promise {promise!r}; there are: {', '.join(Promised)}, or some of them")
    return spelling


def _company(neighbour: str | None, clients: int | None) -> tuple[str, int]:
    """Return the word of a neighbour or of several clients, and how many clients there are."""
    client_count = 1 if clients is None else clients
    if not 1 <= client_count <= CLIENTS_MAX:
        raise UsageError(f"--clients {client_count}: a program has 1 to {CLIENTS_MAX} clients")
    if client_count > 1 and neighbour:
        raise UsageError("--clients and --neighbour are measured apart: leave one out")
    return CLIENTS if client_count > 1 else NEIGHBOURS[neighbour] if neighbour else "", client_count


def _scenario_named(offered: Mapping[str, Scenario], name: str) -> Scenario:
    if name not in offered:
        word = next(word for word in COMPANY_FAULTS if f".{word}" in name)
        who = {CLIENTS: "several clients", WRITEBACK: "a neighbour that writes back"}.get(word, "a neighbour")
        raise UsageError(
            f"there is no {name}: a program has {who} at work, under {', '.join(COMPANY_FAULTS[word])}, "
            "and on a file system that keeps what it has synced and has no server"
        )
    return offered[name]


def _build_of(path: str, image: str | Path | None) -> Library:
    from rig.engines.builds import library_for
    from rig.engines.program.spec import SPEC

    return library_for({SPEC.name}, str(_program_of(Path(path), Path(image)) if image else path))


def _program_of(path: Path, image: Path) -> Path:
    """Return the program that the build of a recipe has made, or the user's own file."""
    from rig.images import recipes

    folder = recipes.built_folder(image)
    own, place = image.parent.resolve(), path.resolve()
    return folder / place.relative_to(own) if folder != image.parent and place.is_relative_to(own) else path


def _tuning(name: str, needs: Needs | None, environment: Sequence[str], arguments: Sequence[str]) -> dict[str, str]:
    """Return what is part of a program's scenarios: its name, its recipe, and what the user starts it with."""
    for word in environment:
        if not word.partition("=")[0] or "=" not in word:
            raise UsageError(f"--env {word}: a variable is NAME=VALUE")
    tuning = {
        "program": name,
        "release": needs.version if needs else "",
        "image": needs.name if needs else "",
        "environment": json.dumps(environment) if environment else "",
        "arguments": json.dumps(arguments) if arguments else "",
    }
    return {key: value for key, value in tuning.items() if value}


def of_run(stored: Scenario, library: str | None, image: str | None) -> Library | None:
    """Return the build of a stored scenario with its image; `library` and `image` are what the user names again."""
    from rig.engines.builds import library_of_run
    from rig.images import recipes

    wanted = stored.tuning.get("image", "")
    if image:
        recipes.require_of_run(wanted, Path(image))
    build = library_of_run(stored, library)
    return replace(build, image=wanted, client_count=stored.workload.client_count) if build else None
