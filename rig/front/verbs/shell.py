"""The command `rig shell`: a machine with a crash state mounted, and a shell in it."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rig.front import options, programs
from rig.front.rundirs import newest_run

_READ_BYTES = 1 << 12
_LOOK_S = 0.1
# What a terminal sends at the end of its input.
_END = b"\x04"


@click.command()
@click.argument("scenario")
@click.argument("state")
@options.library()
@options.image(help="The recipe of the run, if the cache has lost it.")
@options.run_dir(help="Run directory [default: the newest in runs/].")
def shell(*, scenario: str, state: str, library: str | None, image: str | None, run_dir: Path | None) -> None:
    """Boot a machine with a crash state mounted, and start a shell in it; no database has been opened there."""
    from rig.campaign.evidence import of_scenario, of_state
    from rig.front.progress import show
    from rig.machines.guests import guests
    from rig.store import Run

    target = Run.open(run_dir or newest_run(having=scenario))
    stored = target.scenario(scenario)
    build = programs.of_run(stored, library, image)
    with show("booting", "states") as progress:
        progress.says(f"the disk of {state} is mounted; leave with `exit`")
    with (
        guests([build] if build else []) as source,
        of_scenario(target, scenario, source.of(stored)) as of_run,
        of_state(target, of_run, state) as (evidence, crash_state),
        _raw(),
    ):
        code = evidence.shell(crash_state, _typing(), _print)
    sys.exit(code)


@contextmanager
def _raw() -> Iterator[None]:
    """Pass every key on, for the length of a block; a pipe stays as it is."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _typing() -> Iterator[bytes]:
    """Yield what is typed, and nothing now and then so that the caller can look whether the shell has ended."""
    is_open = True
    while True:
        if not select.select([0] if is_open else [], [], [], _LOOK_S)[0]:
            yield b""
            continue
        part = os.read(0, _READ_BYTES)
        is_open = bool(part)
        yield part or _END


def _print(part: bytes) -> None:
    os.write(1, part)
