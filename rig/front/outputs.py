"""What a finished run is written to besides its directory and the terminal: files and annotations for CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rig.contract.errors import RigError, UsageError
from rig.front import options
from rig.host.files import atomic_write, require_writable

if TYPE_CHECKING:
    from rich.console import Console

    from rig.analysis.explain.story import Telling
    from rig.analysis.history.changes import Changes
    from rig.analysis.history.nights import Night
    from rig.analysis.judging.outcome import Summary
    from rig.analysis.show.ci.cases import Case
    from rig.contract.results import Verdict
    from rig.contract.scenario import Scenario

# GitHub sets this to "true" in each of its workflows, and reads annotations from standard output.
_GITHUB = "GITHUB_ACTIONS"
# Where GitHub and GitLab name the commit that is tested.
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA")
_INCONCLUSIVE = 3


@dataclass(frozen=True)
class RunSummary:
    """A run, or several judged together, summed up."""

    name: str
    began: datetime
    # How closely it looked: the profile, and the number of states if another was asked for.
    profile: str
    summary: Summary
    # Scenario -> why it was not measured.
    failures: Mapping[str, str]
    # One for each damaged file.
    damaged: Sequence[RigError]
    report: Path
    # Scenario -> how often it was measured again because it could not be measured.
    retries: Mapping[str, int] = field(default_factory=dict)
    # Scenario -> what came of explaining one of its states.
    tellings: Mapping[str, Telling] = field(default_factory=dict)
    # Whether the run was asked for the scenario with this name in a baseline.
    is_asked: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True)
class Outputs:
    """Where the results go, and what they are held against; None for what is not wanted."""

    junit: Path | None = None
    step_summary: Path | None = None
    baseline: Path | None = None
    update_baseline: bool = False
    history: Path | None = None

    def check(self) -> None:
        """Raise an error if a file could not be written or read, before anything is measured."""
        from rig.analysis.history import baseline

        if self.update_baseline and not self.baseline:
            raise UsageError("--update-baseline needs a file to write: --baseline FILE")
        written = (self.junit, self.step_summary, self.baseline if self.update_baseline else None)
        for path in filter(None, written):
            require_writable(path.parent, f"name another file than {path}")
        if self.history:
            require_writable(self.history, "name another folder with --history")
        if self.baseline and not (self.update_baseline and not self.baseline.exists()):
            baseline.read(self.baseline)

    def end_of(self, fail_fast: bool) -> Callable[[Scenario, Verdict], bool] | None:  # noqa: FBT001 - an option's name
        """Return what says at which verdict a run ends: one that breaks a promise, unless the baseline expects it."""
        from rig.analysis.history import baseline
        from rig.analysis.judging.outcome import Result, breaks

        if not fail_fast:
            return None
        entries = baseline.read(self.baseline).entries if self.baseline and self.baseline.exists() else {}
        broken = {name for name, entry in entries.items() if entry.result == Result.BROKEN}
        return lambda scenario, verdict: breaks(scenario, verdict) and baseline.name_of(scenario) not in broken

    def end(self, run: RunSummary) -> int:
        """Write the files, print the table and what changed, annotate a GitHub workflow, and return the exit code."""
        from rig.analysis.history.changetext import lines
        from rig.analysis.show import broken
        from rig.analysis.show.ci.annotations import workflow_commands
        from rig.analysis.show.ci.cases import cases
        from rig.analysis.show.table import print_table
        from rig.front.terminal import standard_output

        changes = self._changes(run)
        if self.update_baseline:
            self._update(run)
        # What was written to the baseline is expected now, and does not fail.
        expected = self._changes(run) if self.update_baseline else changes
        test_cases = [
            replace(case, retry_count=run.retries.get(case.name, 0))
            for case in cases(run.summary, run.failures, [str(error) for error in run.damaged], expected)
        ]
        # Files first: the reader of the table may close the pipe halfway.
        self._write_files(run, test_cases, changes)
        console = standard_output()
        print_table(run.summary, console)
        for line in broken.lines(broken.breaks(run.summary, run.tellings), console.width):
            print_lines([("", line)], console)
        for line in not_measured(run.failures):
            click.echo(line, err=True)
        for scenario, count in run.retries.items():
            click.echo(f"measured again {scenario}: {count} times", err=True)
        for error in run.damaged:
            click.echo(f"damaged: {error}; to judge it again, repeat the command", err=True)
        print_lines(lines(changes) if changes else (), console)
        if os.environ.get(_GITHUB) == "true":
            for line in workflow_commands(test_cases):
                click.echo(line)
        click.echo(f"report: {run.report}")
        return self._code(run, changes)

    def _changes(self, run: RunSummary) -> Changes | None:
        from rig.analysis.history import baseline, changes

        if not self.baseline or not self.baseline.exists():
            return None
        expected = baseline.read(self.baseline)
        return changes.changes(expected, run.summary, run.profile, run.failures, is_asked=run.is_asked)

    def _update(self, run: RunSummary) -> None:
        from rig.analysis.history import baseline

        assert self.baseline
        old = baseline.read(self.baseline) if self.baseline.exists() else None
        new = baseline.baseline_of(run.summary, run.profile)
        baseline.write(baseline.update(old, new), self.baseline)

    def _write_files(self, run: RunSummary, test_cases: Sequence[Case], changes: Changes | None) -> None:
        from rig.analysis.history import nights
        from rig.analysis.show.ci.junit import junit_xml
        from rig.analysis.show.ci.stepsummary import step_summary

        if self.junit:
            _write(self.junit, junit_xml(test_cases, f"rig {run.name}"))
        if self.step_summary:
            _write(self.step_summary, step_summary(run.summary, test_cases, changes).encode())
        if self.history:
            nights.add(_night(run), self.history)

    def _code(self, run: RunSummary, changes: Changes | None) -> int:
        missing = _INCONCLUSIVE if run.failures or run.damaged else 0
        if self.update_baseline:
            rows = [row for row in run.summary.rows if not row.is_sabotaged]
            has_doubt = not rows or any(row.judgement.result == "inconclusive" for row in rows)
            return missing or (_INCONCLUSIVE if has_doubt else 0)
        return (changes.exit_code if changes else run.summary.exit_code) or missing


def not_measured(failures: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why scenarios were not measured."""
    by_reason: dict[str, list[str]] = {}
    for scenario_id, why in failures.items():
        by_reason.setdefault(why, []).append(scenario_id)
    return [f"not measured {', '.join(names)}: {why}" for why, names in by_reason.items()]


def print_lines(styled_lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print lines, each given with its style."""
    from rich.text import Text

    for style, line in styled_lines:
        console.print(Text(line, style=style), soft_wrap=True)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where results go to a command, which gets them as one argument `outputs`."""

    @wraps(command)
    def with_outputs(
        *, junit: Path | None, step_summary: Path | None, baseline: Path | None, update_baseline: bool,
        history: Path | None, **others: Any,
    ) -> Any:  # fmt: skip
        outputs = Outputs(junit, step_summary, baseline, update_baseline=update_baseline, history=history)
        return command(outputs=outputs, **others)

    last_first = (
        options.history(), options.update_baseline(), options.baseline(), options.step_summary(), options.junit(),
    )  # fmt: skip
    for option in last_first:
        with_outputs = option(with_outputs)
    return with_outputs


def _night(run: RunSummary) -> Night:
    from importlib.metadata import version

    from rig.analysis.history.nights import Night

    commit = next(filter(None, map(os.environ.get, _COMMITS)), "")
    rig = version("powercut-rig")
    return Night(run.name, run.began, run.profile, commit, rig, run.summary, run.failures)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, data)
