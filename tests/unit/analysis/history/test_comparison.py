"""Two runs side by side: what differs, what it rests on, and states to replay; sampling alone makes nothing worse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rig.analysis.history.changes import Aspect
from rig.analysis.history.comparison import ComparedRun, RunComparison, comparison
from rig.analysis.judging.outcome import summarise
from rig.contract.results import LogFacts, MeasuredScenario, Verdict, VerdictKind
from rig.front import cli
from tests.unit.samples import controls_that_fire, durable, measured_scenario, sqlite, verdict
from tests.unit.storedruns import store

FULL = "sqlite-ext4-wal_full_powercut"


def run(full: Sequence[Verdict]) -> list[MeasuredScenario]:
    return [*controls_that_fire(), measured_scenario(sqlite("wal", "full"), full)]


def other_recording(scenarios: Sequence[MeasuredScenario], **facts: Any) -> list[MeasuredScenario]:
    logs = [LogFacts("f" * 64, 1, 1)]
    return [replace(one, recording=replace(one.recording, logs=logs, **facts)) for one in scenarios]


def of(before: Sequence[MeasuredScenario], after: Sequence[MeasuredScenario]) -> RunComparison:
    return comparison(
        *(ComparedRun(name, "quick", summarise(one, 60), {}, name) for name, one in (("a", before), ("b", after)))
    )


def turned(count: int = 1) -> list[Verdict]:
    """The states of `durable`; the first ones lost transactions."""
    states = durable(150)
    lost = [replace(one, kind=VerdictKind.LOST_SUFFIX, lost=2, recovered=18) for one in states[:count]]
    return [*lost, *states[count:]]


def test_a_state_that_both_judged_differently_makes_it_worse_and_is_named() -> None:
    found = of(run(durable(150)), run(turned()))
    (pair,) = [one for one in found.pairs if one.name == FULL]
    assert [(VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX)] == [
        (one.before.kind, one.after.kind) for one in pair.turned
    ]
    assert "the same recording, 150 states judged in both" == pair.rests_on
    assert (1, Aspect.PROMISE) == (found.changes.exit_code, found.changes.worse[0].aspect)


def test_a_loss_in_a_state_that_only_one_run_tried_is_no_answer_and_can_be_judged_in_the_other() -> None:
    lost = verdict(VerdictKind.LOST_SUFFIX, 2, "fresh")
    found = of(run(durable(150)), run([*durable(150), lost]))
    assert (3, ()) == (found.changes.exit_code, found.changes.worse)
    (pair,) = [one for one in found.pairs if one.name == FULL]
    assert [lost] == list(pair.fresh)


def test_different_recordings_are_compared_by_their_figures() -> None:
    after = other_recording(run([*durable(150), verdict(VerdictKind.LOST_SUFFIX, 2, "x")]), seed=2, kernel="6.99")
    found = of(run(durable(150)), after)
    assert 1 == found.changes.exit_code
    # What differs for all of them is said once.
    assert {("kernel", "6.12.43+deb13-cloud-amd64", "6.99"), ("seed", "1", "2")} <= set(found.common)
    assert all(not {"kernel", "seed"} & {what for what, *_ in pair.evidence} for pair in found.pairs)


def test_a_run_equals_itself() -> None:
    found = of(run(turned()), run(turned()))
    assert (0, (), ()) == (found.changes.exit_code, found.common, found.changes.better)
    assert [()] * 3 == [pair.evidence for pair in found.pairs]


def test_a_scenario_that_only_one_run_has_is_shown() -> None:
    found = of(run(durable(150)), controls_that_fire())
    (pair,) = [one for one in found.pairs if one.name == FULL]
    assert (None, "measured in one run only") == (pair.after, pair.rests_on)
    assert (FULL,) == found.changes.absent


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return store(tmp_path / "a", run(durable(150))), store(tmp_path / "b", run(turned(7)))


def rig(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)), env={"COLUMNS": "140"})


def test_the_command_shows_results_states_and_the_answer(folders: tuple[Path, Path]) -> None:
    result = rig("compare", *folders)
    assert 1 == result.exit_code
    text = " ".join(result.output.split())
    assert "kept -> broken" in text
    assert (
        f"durable, lost 0 before, lost-suffix, lost 2 after: rig replay {FULL} durable-0 --run-dir {folders[1]}" in text
    )
    assert result.output.rstrip().endswith("Worse than the baseline: 3 worse.")
    assert 0 == rig("compare", folders[0], folders[0]).exit_code


def test_json_and_markdown_say_the_same(folders: tuple[Path, Path]) -> None:
    known = json.loads(rig("compare", *folders, "--format", "json").output)
    assert ("a", "b") == (known["before"], known["after"])
    assert ("kept", "broken") == tuple(known["scenarios"][FULL][side]["result"] for side in ("before", "after"))
    assert {FULL} == {change["subject"] for change in known["worse"]}
    markdown = rig("compare", *folders, "--format", "markdown").output
    assert markdown.startswith("### Worse than the baseline: ")
    assert "| kept -&gt; broken |" in markdown


def test_a_damaged_run_is_not_compared(folders: tuple[Path, Path]) -> None:
    (folders[1] / "scenarios" / FULL / "verdicts.jsonl").write_text("{}\n")
    result = rig("compare", *folders)
    assert 3 == result.exit_code
    assert "is damaged" in result.output
