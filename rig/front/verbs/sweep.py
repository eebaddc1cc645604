"""The command `rig sweep`: how the loss at a random instant depends on one thing."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import UsageError
from rig.front import options
from rig.front.rundirs import RUNS, SWEEP

if TYPE_CHECKING:
    from rig.analysis.judging.outcome import Row
    from rig.contract.scenario import Scenario
    from rig.planning.matrix import Profile

_PAUSE, _FILESYSTEM, _DEVICE = "pause-ms", "fs", "device"
_PAGE = "sweep.html"
_OK, _INCONCLUSIVE = 0, 3
_INSTANTS = 240


@dataclass(frozen=True)
class _Asked:
    """What is measured at every value, and what is varied."""

    patterns: Sequence[str]
    # The name of a tuning, or one of the names above.
    over: str
    profile: Profile
    device: str
    seed: int
    tuning: dict[str, str]
    pause_ms: int
    controls: bool

    def scenarios(self, value: str) -> list[Scenario]:
        """Return the scenarios at a value, and their controls; raise UsageError if the value cannot be measured."""
        from rig.contract.devices import device_named
        from rig.front import selection
        from rig.planning import matrix

        asked = matrix.select([self._pattern(pattern, value) for pattern in self.patterns])
        for scenario in asked:
            if not self.profile.instants_of(scenario):
                raise UsageError(f"{scenario.id} has no cut instants; powercut has, of a scenario with all its syncs")
        chosen = selection.with_controls(asked) if self.controls else asked
        is_tuned = self.over not in {_PAUSE, _FILESYSTEM, _DEVICE}
        scenarios = matrix.configure(
            chosen,
            self.profile,
            device_named(value if self.over == _DEVICE else self.device),
            self.seed,
            tuning=self.tuning | ({self.over: value} if is_tuned else {}),
            think_ms=_pause(value) if self.over == _PAUSE else self.pause_ms,
        )
        # A random instant lies in the work, not in the pause after it.
        return [replace(scenario, workload=replace(scenario.workload, rest_ms=0)) for scenario in scenarios]

    def name(self, row: Row) -> str:
        """Return the id of a scenario without the fault and without what is varied."""
        scenario = row.outcome.scenario
        on = () if self.over == _FILESYSTEM else (scenario.filesystem,)
        return "-".join((scenario.engine, *on, row.outcome.settings_name))

    def _pattern(self, pattern: str, value: str) -> str:
        if self.over != _FILESYSTEM:
            return pattern
        parts = pattern.split("-", 2)
        if len(parts) < 3:
            raise UsageError(f"--over {_FILESYSTEM} needs whole ids, as `rig plan` lists them; not {pattern!r}")
        return f"{parts[0]}-{value}-{parts[2]}"


@click.command()
@options.scenarios(required=True, metavar="SCENARIO...")
@click.option(
    "--over", required=True, metavar="NAME=VALUE,VALUE",
    help=f"What is varied: {_PAUSE}, {_FILESYSTEM}, {_DEVICE} or a tuning option of the engine.",
)  # fmt: skip
@options.transactions(type=click.IntRange(min=2), help="Transactions of each recording.")
@click.option(
    "--instants", type=click.IntRange(min=2), default=_INSTANTS, show_default=True, help="Cut instants of a recording."
)
@options.profile()
@options.controls()
@options.device(help="The disk, unless it is varied.")
@options.seed()
@options.tune()
@options.pause_ms(help="Mean pause before a transaction, unless it is varied.")
@options.run_dir(help="Folder of the runs and the page [default: one in runs/ for this command].")
@options.jobs()
def sweep(
    *, scenarios: tuple[str, ...], over: str, transactions: int, instants: int, profile: str, controls: bool,
    device: str, seed: int, tuning: dict[str, str], pause_ms: int, run_dir: Path | None, jobs: int,
) -> None:  # fmt: skip
    """Measure scenarios at several values of one thing, and show how the loss at a random instant depends on it.

    Each value is a run of its own, like one of `rig run`. The same command again measures what is missing.
    """
    from rig.analysis.show import pages
    from rig.analysis.show.sweep import CAPTION, Sweep, page_html, steps, tables
    from rig.front.measuring import measure
    from rig.front.terminal import standard_output
    from rig.front.verbs.doctor import require_runs
    from rig.front.verbs.reports import write
    from rig.planning import matrix

    name, values = _axis(over)
    closely = replace(matrix.profile(profile), transaction_count=transactions, crowd=1, instants=instants)
    asked = _Asked(scenarios, name, closely, device, seed, tuning, pause_ms, controls=controls)
    # Check all values before the first is measured, so that one that cannot be measured costs nothing.
    wanted = {value: asked.scenarios(value) for value in values}
    folder = run_dir or RUNS / f"{SWEEP}{_digest(wanted, closely)}"
    require_runs(folder.absolute())
    points, code = [], _OK
    for value, chosen in wanted.items():
        target = measure(chosen, closely, folder / f"{name}={_file_name(value)}", added=f"{name}={value}", jobs=jobs)
        summary, damaged = write(target, closely.exposure_min)
        missing = [
            *(f"not measured {scenario_id}: {why}" for scenario_id, why in target.failures().items()),
            *map(str, damaged),
        ]
        for line in missing:
            click.echo(line, err=True)
        points += steps(value, summary, asked.name)
        code = _worse(code, summary.exit_code or (_INCONCLUSIVE if missing else _OK))
    shown = Sweep(name, values, points)
    page = folder / _PAGE
    facts = {"scenarios": " ".join(scenarios), "profile": profile, "transactions": str(transactions)}
    facts |= {"device": device, "pause-ms": str(pause_ms)} | asked.tuning
    facts |= {"seed": str(seed), "runs": str(folder)}
    facts.pop(name, None)
    pages.write(page_html(shown, facts), page)
    console = standard_output()
    for table in tables(shown):
        console.print(table)
    console.print(CAPTION)
    click.echo(f"page: {page}")
    sys.exit(code)


def _axis(over: str) -> tuple[str, tuple[str, ...]]:
    """Return what is varied and its values, in the order given; raise UsageError if the text is invalid."""
    name, _, text = over.partition("=")
    values = tuple(dict.fromkeys(text.split(",")))
    if not name or not all(values) or len(values) < 2:
        raise UsageError(f"--over takes a name and at least two values, NAME=VALUE,VALUE; not {over!r}")
    return name, values


def _pause(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise UsageError(f"--over {_PAUSE} takes whole milliseconds, not {word!r}")
    return int(word)


def _file_name(value: str) -> str:
    return re.sub(r"[^\w.+-]", "_", value)


def _digest(wanted: dict[str, list[Scenario]], closely: Profile) -> str:
    """Return a name for the measured scenarios and the profile, so that the same command finds its runs again."""
    orders = {
        value: [[scenario.id, asdict(scenario.orders)] for scenario in chosen] for value, chosen in wanted.items()
    }
    return hashlib.blake2b(json.dumps([orders, asdict(closely)], sort_keys=True).encode(), digest_size=4).hexdigest()


def _worse(one: int, other: int) -> int:
    """Return the worse of two exit codes: a broken promise before an inconclusive result."""
    worst_first: Callable[[int], int] = [1, _INCONCLUSIVE, _OK].index
    return min(one, other, key=worst_first)
