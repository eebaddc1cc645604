"""What `rig report` and `rig merge` write for CI, as `rig run` does: files, annotations, exit codes with a baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rig.contract.results import MeasuredScenario, VerdictKind
from rig.front import cli
from rig.front.outputs import Outputs
from rig.store import Run
from tests.unit.samples import controls_that_fire, durable, measured_scenario, sqlite, verdict
from tests.unit.storedruns import store

FULL = "sqlite-ext4-wal_full_powercut"
LOST = verdict(VerdictKind.LOST_SUFFIX, 2, "e00:i4")


def scenarios(*, is_broken: bool) -> list[MeasuredScenario]:
    full = measured_scenario(sqlite("wal", "full"), durable(150))
    return [*controls_that_fire(), replace(full, verdicts=(*full.verdicts, *([LOST] if is_broken else [])))]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return store(tmp_path / "kept", scenarios(is_broken=False))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return store(tmp_path / "broken", scenarios(is_broken=True))


def report(run: Path, *words: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(
        cli.main, ["report", "--run-dir", str(run), *map(str, words)], env={"COLUMNS": "140", **environment}
    )


def test_the_files_are_written_with_the_report(broken: Path, tmp_path: Path) -> None:
    result = report(broken, "--junit", tmp_path / "ci" / "junit.xml", "--summary", tmp_path / "ci" / "summary.md")
    assert 1 == result.exit_code
    assert "<failure" in (tmp_path / "ci" / "junit.xml").read_text()
    assert (tmp_path / "ci" / "summary.md").read_text().startswith("### A promise was broken")
    assert "::error" not in result.output


def test_a_workflow_of_github_gets_annotations(broken: Path) -> None:
    result = report(broken, GITHUB_ACTIONS="true")
    (line,) = [line for line in result.output.splitlines() if line.startswith("::")]
    assert line.startswith(f"::error title={FULL}::broken: 1 of 151 states break the promise")
    assert f"rig replay {FULL} e00:i4 --run-dir {broken}" in line


def test_a_baseline_is_written_and_then_only_what_got_worse_fails(kept: Path, broken: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "durability.json"
    assert 0 == report(kept, "--baseline", baseline, "--update-baseline").exit_code
    assert FULL in json.loads(baseline.read_text())["scenarios"]
    assert 0 == report(kept, "--baseline", baseline).exit_code
    worse = report(broken, "--baseline", baseline)
    assert 1 == worse.exit_code
    assert f"worse: {FULL}: promise: broken; the baseline has kept; " in worse.output
    # A loss that is accepted is written down, and does not fail again.
    accepted = report(broken, "--baseline", baseline, "--update-baseline", GITHUB_ACTIONS="true")
    assert (0, "::error" in accepted.output) == (accepted.exit_code, False)
    assert 0 == report(broken, "--baseline", baseline).exit_code
    repaired = report(kept, "--baseline", baseline)
    assert 0 == repaired.exit_code
    assert f"better: {FULL}: promise: kept; the baseline has broken" in repaired.output


def test_an_update_does_not_accept_what_has_no_answer(tmp_path: Path) -> None:
    run = store(tmp_path / "run", scenarios(is_broken=False)[2:])
    result = report(run, "--baseline", tmp_path / "b.json", "--update-baseline")
    assert 3 == result.exit_code
    assert {} == json.loads((tmp_path / "b.json").read_text())["scenarios"]


def test_a_baseline_that_cannot_be_used_is_a_usage_error_before_anything_is_measured(tmp_path: Path) -> None:
    def run(*words: str | Path) -> Result:
        return CliRunner().invoke(cli.main, ["run", FULL, "--run-dir", str(tmp_path / "run"), *map(str, words)])

    result = run("--baseline", tmp_path / "nowhere.json")
    assert 2 == result.exit_code
    assert "cannot be read" in result.output
    assert 2 == run("--update-baseline").exit_code
    assert not (tmp_path / "run").exists()


def test_a_run_of_which_nothing_could_be_measured_still_has_its_files(tmp_path: Path) -> None:
    run = store(tmp_path / "run", [])
    (run / "scenarios" / FULL).mkdir(parents=True)
    (run / "scenarios" / FULL / "failure").write_text("the machine was lost")
    result = report(run, "--junit", tmp_path / "junit.xml")
    assert 3 == result.exit_code, result.output
    assert "not measured: the machine was lost" in (tmp_path / "junit.xml").read_text()


def test_a_run_that_was_stopped_is_not_kept(tmp_path: Path) -> None:
    asked = {"scenarios": [FULL, "sqlite-ext4-wal_normal_powercut"]}
    result = report(store(tmp_path / "stopped", scenarios(is_broken=False), asked))
    assert 3 == result.exit_code
    assert "not measured sqlite-ext4-wal_normal_powercut: the run ended before its turn" in result.output


def test_a_shard_alone_is_not_judged(tmp_path: Path) -> None:
    result = report(store(tmp_path / "shard", scenarios(is_broken=False), {"shard": "1/2"}))
    assert (2, True) == (result.exit_code, "is shard 1/2 of a run: `rig merge` judges all shards" in result.output)


def test_a_run_is_held_to_the_entries_that_it_was_asked_for(kept: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "durability.json"
    report(kept, "--baseline", baseline, "--update-baseline")
    for patterns, code in (([], 3), (["sqlite-ext4-*"], 3), (["sqlite-ext4-wal_off*"], 0)):
        run = store(
            tmp_path / f"without-{code}-{len(patterns)}", scenarios(is_broken=False)[:2], {"patterns": patterns}
        )
        result = report(run, "--baseline", baseline, "--junit", tmp_path / "junit.xml")
        assert ("did not measure it" in (tmp_path / "junit.xml").read_text()) is (code == 3)
        assert (code, code == 3) == (result.exit_code, "this run did not measure it" in result.output), result.output


def test_an_update_with_a_broken_and_an_inconclusive_scenario_says_so(tmp_path: Path) -> None:
    few = measured_scenario(sqlite("wal", "extra"), durable(3))
    run = store(tmp_path / "run", [*scenarios(is_broken=True), few])
    assert 3 == report(run, "--baseline", tmp_path / "b.json", "--update-baseline").exit_code


def test_a_break_that_the_baseline_expects_does_not_stop_a_run(broken: Path, tmp_path: Path) -> None:
    path = tmp_path / "durability.json"
    full = scenarios(is_broken=True)[-1].scenario
    for outputs, ends in ((Outputs(), True), (Outputs(baseline=path, update_baseline=True), True)):
        fails = outputs.end_of(fail_fast=True)
        assert fails
        assert ends is fails(full, LOST)
    report(broken, "--baseline", path, "--update-baseline")
    fails = Outputs(baseline=path).end_of(fail_fast=True)
    assert fails
    assert not fails(full, LOST)
    assert Outputs().end_of(fail_fast=False) is None


def test_in_a_report_of_several_runs_only_a_later_measurement_makes_up_for_a_failure(
    kept: Path, tmp_path: Path
) -> None:
    failed = Run.open(store(tmp_path / "failed", scenarios(is_broken=False)[:2], {"device": "ssd-sata"}))
    failed.note_failure(FULL, "no machine")
    for runs, code in (((failed.folder, kept), 0), ((kept, failed.folder), 3)):
        first, second = map(str, runs)
        words = ["report", "--run-dir", first, "--run-dir", second, "--out", str(tmp_path / "both.html")]
        result = CliRunner().invoke(cli.main, words, env={"COLUMNS": "140"})
        assert (code, code == 3) == (result.exit_code, f"not measured {FULL} on ssd-sata: no machine" in result.output)
