"""The options that several commands share. Each is declared here once, so that it has one name, type and default.

A command calls an option as a decorator, `@options.device()`, and may give it a help text or a default of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rig.contract.devices import DEFAULT_DEVICE, DEVICES
from rig.contract.errors import UsageError
from rig.contract.scenario import WorkloadSpec

if TYPE_CHECKING:
    from rig.shards import Shard


def tuning_of(words: Sequence[str]) -> dict[str, str]:
    """Return the tuning in words such as `page_size=1024`; raise UsageError for a word of another form."""
    tuning = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not (name and separator and value):
            raise UsageError(f"--tune {word}: a tuning is NAME=VALUE")
        tuning[name] = value
    return tuning


class Finite(click.FloatRange):
    """A range of numbers without `inf`, and without `nan`, which is not below or above any bound and so would pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail if the text is no number or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def _shard_of(text: str | None) -> Shard | None:
    from rig.shards import Shard

    return Shard.of(text) if text else None


scenarios = partial(click.argument, "scenarios", nargs=-1, metavar="[SCENARIO]...")

# How closely to look, and at what.
profile = partial(
    click.option, "--profile", default="quick", show_default=True,
    help="How closely to look: smoke, quick, nightly or exhaustive.",
)  # fmt: skip
states = partial(
    click.option, "--states", type=click.IntRange(min=1),
    help="Initial crash states of a scenario. More follow if too few file contents were seen.",
)  # fmt: skip
controls = partial(
    click.option, "--controls/--no-controls", default=True, show_default=True,
    help="Measure the controls of the scenarios too.",
)  # fmt: skip
fail_fast = partial(
    click.option, "--fail-fast", is_flag=True,
    help="Stop at the first crash state that breaks a promise; the states that show most come first.",
)  # fmt: skip
explain = partial(
    click.option, "--explain/--no-explain", default=True, show_default=True,
    help="Explain the worst state that breaks a promise, in at most two minutes.",
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
filesystems = partial(click.option, "--fs", "filesystems", multiple=True, metavar="NAME")
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
output_format = partial(click.option, "--format", "wanted", default="text", show_default=True)
out = partial(click.option, "--out", type=click.Path(path_type=Path, dir_okay=False))
output_format = partial(click.option, "--format", "wanted", default="text", show_default=True)
jobs = partial(
    click.option,
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    help="Machines at a time [default: one per processor].",
)

workers = partial(
    click.option, "--workers", type=click.IntRange(min=1), metavar="N",
    help="Run in N processes of this host, a machine each, through Dask.",
)  # fmt: skip
dask = partial(
    click.option, "--dask", metavar="ADDRESS",
    help="Run on the workers of a Dask cluster; ADDRESS is its scheduler's, such as tcp://HOST:8786.",
)  # fmt: skip
retries = partial(
    click.option, "--retries", type=click.IntRange(min=0), default=0, show_default=True,
    help="How often a scenario that could not be measured is tried again. A verdict is never judged again.",
)  # fmt: skip
shard = partial(
    click.option, "--shard", metavar="I/N", callback=lambda _context, _option, text: _shard_of(text),
    help="Measure only part I of N of the scenarios; `rig merge` puts the parts together.",
)  # fmt: skip
shard_dirs = partial(
    click.argument, "shards", nargs=-1, required=True, metavar="RUN...",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
)  # fmt: skip

# What continuous integration reads.
junit = partial(
    click.option, "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write JUnit XML too, with a test case for each scenario.",
)  # fmt: skip
step_summary = partial(
    click.option, "--summary", "step_summary", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write a summary in Markdown too; in a GitHub workflow FILE is $GITHUB_STEP_SUMMARY.",
)  # fmt: skip
baseline = partial(
    click.option, "--baseline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Compare with what this file expects, and fail only on what got worse.",
)  # fmt: skip
update_baseline = partial(
    click.option, "--update-baseline", is_flag=True,
    help="Write what the run shows to the file of --baseline, instead of failing.",
)  # fmt: skip
history = partial(
    click.option, "--history", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Add the run to a history: a folder of Parquet files for `rig history` and `rig query`.",
)  # fmt: skip
history_dir = partial(
    click.option, "--history", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", required=True,
    help="The folder that `rig run --history` adds to.",
)  # fmt: skip
