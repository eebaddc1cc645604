"""A user's program: the options that name it, and the scenarios that measure it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rig.contract.errors import UsageError
from rig.front import options

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library

DEFAULT_PROMISE, DEFAULT_FAULT = "durable", "powercut"


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
            help=f"The promise that --program must keep: durable, prefix or atomic [default: {DEFAULT_PROMISE}].",
        ),
        options.fault(help=f"A fault for --program; may be repeated [default: {DEFAULT_FAULT}]."),
        options.fs(help="The file system for --program."),
        options.image(help="What --program needs in the guest: a file RECIPE.toml."),
        click.option(
            "--program", metavar="PATH", help="Your own program, instead of scenarios: docs/how-to/your-own-program.md."
        ),
    ):
        command = option(command)
    return command


def chosen(
    path: str,
    filesystem: str | None,
    faults: Sequence[str],
    promise: str | None,
    image: str | Path | None = None,
    *,
    controls: bool = True,
) -> Chosen:
    """Return a program and the scenarios that measure it; raise UsageError naming the choices."""
    from rig.engines import named
    from rig.engines.builds import library_for
    from rig.engines.program.spec import SPEC
    from rig.filesystems import filesystem_named, filesystems
    from rig.front import selection
    from rig.images import needs
    from rig.planning import matrix

    if filesystem is None:
        raise UsageError(f"--program needs a file system: --fs {'|'.join(one.word for one in filesystems())}")
    word, promise = filesystem_named(filesystem).word, promise or DEFAULT_PROMISE
    (promises,) = SPEC.settings.values()
    if promise not in promises:
        raise UsageError(f"unknown promise {promise!r}; there are: {', '.join(promises)}")
    engine = named(SPEC.name)
    offered = {one.id: one for one in matrix.scenarios_of([engine])}
    asked = []
    for fault in faults or (DEFAULT_FAULT,):
        matrix.require_measurable(engine, filesystem_named(word), fault)
        asked.append(offered[f"{SPEC.name}-{word}-{promise}_{fault}"])
    measured = selection.with_own_controls(asked) if controls else asked
    build, added = library_for({SPEC.name}, path), selection.added_line(asked, measured)
    if image:
        build = replace(build, image=needs.of_file(Path(image)).name)
        measured = [replace(one, tuning={**one.tuning, "image": build.image}) for one in measured]
    return Chosen(build, measured, added)


def of_run(stored: Scenario, library: str | None, image: str | None) -> Library | None:
    """Return the build of a stored scenario with its image; `library` and `image` are what the user names again."""
    from rig.engines.builds import library_of_run
    from rig.images import needs

    wanted = stored.tuning.get("image", "")
    if image:
        needs.require_of_run(wanted, Path(image))
    build = library_of_run(stored, library)
    return replace(build, image=wanted) if build else None
