"""The options that several commands share. Each is declared here once, so that it has one name, type and default.

A command calls an option as a decorator, `@options.device()`, and may give it a help text or a default of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from rig.contract.devices import DEFAULT_DEVICE, DEVICES
from rig.contract.errors import UsageError
from rig.contract.scenario import WorkloadSpec


def tuning_of(words: Sequence[str]) -> dict[str, str]:
    """Return the tuning in words such as `page_size=1024`; raise UsageError for a word of another form."""
    tuning = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not (name and separator and value):
            raise UsageError(f"--tune {word}: a tuning is NAME=VALUE")
        tuning[name] = value
    return tuning


scenarios = partial(click.argument, "scenarios", nargs=-1, metavar="[SCENARIO]...")

# How closely to look, and at what.
profile = partial(
    click.option, "--profile", default="quick", show_default=True,
    help="How closely to look: quick, nightly or exhaustive.",
)  # fmt: skip
states = partial(
    click.option, "--states", type=click.IntRange(min=1),
    help="Initial crash states of a scenario. More follow if too few file contents were seen.",
)  # fmt: skip
controls = partial(
    click.option, "--controls/--no-controls", default=True, show_default=True,
    help="Measure the controls of the scenarios too.",
)  # fmt: skip
fault = partial(click.option, "--fault", "faults", multiple=True)
seed = partial(
    click.option, "--seed", type=click.IntRange(min=0), default=1, show_default=True,
    help="Seed of the workload and of sampling.",
)  # fmt: skip

# What is measured: the disk, the file system, the engine with its tuning, the load.
device = partial(
    click.option, "--device", metavar="NAME", default=DEFAULT_DEVICE, show_default=True,
    help=f"The disk: {', '.join(DEVICES)}.",
)  # fmt: skip
fs = partial(click.option, "--fs", "filesystem", metavar="NAME")
library = partial(
    click.option, "--library", metavar="WHICH", help="Another build of the engine: a shared library, or NAME==VERSION."
)
image = partial(click.option, "--image", metavar="RECIPE")
tune = partial(
    click.option, "--tune", "tuning", multiple=True, callback=lambda _context, _option, words: tuning_of(words),
    metavar="NAME=VALUE", help="Change a tuning option of the engine; may be repeated.",
)  # fmt: skip
transactions = partial(click.option, "--transactions", type=click.IntRange(min=1), default=200, show_default=True)
pause_ms = partial(
    click.option, "--pause-ms", type=click.IntRange(min=0), default=WorkloadSpec.think_ms, show_default=True,
    help="Mean pause before a transaction.",
)  # fmt: skip

# Where results are, and how they are made.
run_dir = partial(click.option, "--run-dir", type=click.Path(path_type=Path, file_okay=False))
run_dirs = partial(run_dir, "run_dirs", multiple=True)
out = partial(click.option, "--out", type=click.Path(path_type=Path, dir_okay=False))
jobs = partial(
    click.option,
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    help="Machines at a time [default: one per processor].",
)
