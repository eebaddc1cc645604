"""Shards: a plan is split by cost, the same everywhere, and merged shards are the whole run, or say what is missing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import control_settings
from rig.contract.errors import UsageError
from rig.contract.results import MeasuredScenario
from rig.contract.scenario import Scenario
from rig.front import cli
from rig.planning import defaults, matrix
from rig.shards import Shard, cost_s, merge, split
from rig.store import Run
from tests.unit.samples import controls_that_fire, durable, measured_scenario, sqlite
from tests.unit.storedruns import store

QUICK, NIGHTLY = matrix.profile("quick"), matrix.profile("nightly")
WHOLE = [
    *controls_that_fire(),
    measured_scenario(sqlite("wal", "full"), durable(150)),
    measured_scenario(sqlite("delete", "extra"), durable(99)),
]
IDS = [one.scenario.id for one in WHOLE]
DEFINITION = {"scenarios": IDS, "orders": {name: {"seed": 1} for name in IDS}}


@pytest.fixture(scope="module")
def plan() -> list[Scenario]:
    return matrix.configure(defaults.default_scenarios(NIGHTLY, control_settings), NIGHTLY)


@given(count=st.integers(1, 40), seed=st.integers())
def test_every_scenario_is_in_one_shard_whatever_the_order_of_the_plan(
    plan: list[Scenario], count: int, seed: int
) -> None:
    shards = split(plan, NIGHTLY, count)
    assert count == len(shards)
    ids = [scenario.id for shard in shards for scenario in shard]
    assert sorted(ids) == sorted(scenario.id for scenario in plan)
    shuffled = random.Random(seed).sample(plan, len(plan))
    assert shards == split(shuffled, NIGHTLY, count)


def test_scenarios_that_share_a_recording_stay_together(plan: list[Scenario]) -> None:
    keys = [{scenario.recording_key for scenario in shard} for shard in split(plan, NIGHTLY, 8)]
    assert len(set.union(*keys)) == sum(map(len, keys))


def test_shards_cost_about_the_same(plan: list[Scenario]) -> None:
    costs = [sum(cost_s([one], NIGHTLY) for one in shard) for shard in split(plan, NIGHTLY, 8)]
    assert max(costs) < 1.2 * min(costs)


def test_a_server_costs_more_than_an_embedded_engine() -> None:
    (server,) = matrix.select(["postgresql-ext4-default_powercut"])
    (embedded,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    assert cost_s([server], QUICK) > 10 * cost_s([embedded], QUICK)


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "-1/4", "1/0", "1/4/2", "a/b", "1/99999"])
def test_what_is_no_shard_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="a shard is I/N"):
        Shard.of(text)


def of(folder: Path, number: int, scenarios: Sequence[MeasuredScenario], count: int = 3) -> Run:
    return Run.open(store(folder / f"shard-{number}", scenarios, {**DEFINITION, "shard": f"{number}/{count}"}))


@pytest.fixture
def shards(tmp_path: Path) -> list[Run]:
    parts = (WHOLE[:1], WHOLE[1:3], WHOLE[3:])
    return [of(tmp_path, number, part) for number, part in enumerate(parts, 1)]


def rig(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)), env={"COLUMNS": "140"})


def test_merged_shards_equal_one_run_verdicts_and_report(shards: list[Run], tmp_path: Path) -> None:
    whole = store(tmp_path / "one" / "run", WHOLE, DEFINITION)
    merged = tmp_path / "merged" / "run"
    result = rig("merge", *(run.folder for run in shards), "--run-dir", merged)
    plain = rig("report", "--run-dir", whole)
    assert (0, 0) == (result.exit_code, plain.exit_code), result.output
    assert plain.output.replace(str(whole), "") == result.output.replace(str(merged), "")
    assert Run.open(whole).results() == Run.open(merged).results()
    for name in ("verdicts.parquet", "report.html"):
        # Replay lines name the run.
        assert (whole / name).read_bytes().replace(b"/one/", b"/merged/") == (merged / name).read_bytes()


def test_without_a_shard_its_scenarios_are_inconclusive(shards: list[Run], tmp_path: Path) -> None:
    result = rig("merge", shards[0].folder, shards[1].folder, "--run-dir", tmp_path / "run")
    assert 3 == result.exit_code
    assert "not measured sqlite-ext4-delete_extra_powercut: shard 3/3 is missing" in result.output
    # The controls were in the other shards, and count.
    assert 2 == sum("fired:" in line for line in result.output.splitlines() if "_off" in line)
    # Without a control, nothing that depends on it is green.
    result = rig("merge", shards[1].folder, shards[2].folder, "--run-dir", tmp_path / "other")
    assert 3 == result.exit_code
    assert "control delete_off was not run" in result.output


def test_a_missing_shard_that_comes_later_completes_the_run(shards: list[Run], tmp_path: Path) -> None:
    folders = [run.folder for run in shards]
    assert 3 == rig("merge", *folders[:2], "--run-dir", tmp_path / "run").exit_code
    assert 0 == rig("merge", *folders, "--run-dir", tmp_path / "run").exit_code


def test_a_shard_that_was_stopped_names_what_it_lacks(shards: list[Run], tmp_path: Path) -> None:
    shutil.rmtree(shards[2].folder / "scenarios" / IDS[3])
    merged = merge(shards, tmp_path / "run")
    assert {IDS[3]: "its shard was stopped before it was measured"} == merged.failures()


def test_merging_changes_no_shard(shards: list[Run], tmp_path: Path) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for run in shards for path in run.folder.rglob("*") if path.is_file()}

    before = contents()
    merged = merge(shards, tmp_path / "run")
    # A run that goes on appends and replaces in its own directory only.
    merged.append(IDS[0], merged.verdicts(IDS[0])[0])
    merged.note_failure(IDS[0], "why")
    assert before == contents()


def test_only_all_different_shards_of_one_run_are_merged(shards: list[Run], tmp_path: Path) -> None:
    first, second, third = shards
    with pytest.raises(UsageError, match="are both shard 1/3"):
        merge([first, second, first], tmp_path / "run")
    whole = Run.open(store(tmp_path / "whole", WHOLE, DEFINITION))
    with pytest.raises(UsageError, match="is a whole run, not a shard"):
        merge([first, whole], tmp_path / "run")
    with pytest.raises(UsageError, match="are shards of different splits: 1/3, 4/4"):
        merge([first, of(tmp_path, 4, WHOLE[:1], 4)], tmp_path / "run")
    other = Run.create(tmp_path / "other", {"profile": "nightly", **DEFINITION, "shard": "2/3"})
    with pytest.raises(UsageError, match="are shards of two runs: profile differ"):
        merge([first, other, third], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_shard_is_not_held_against_a_baseline() -> None:
    result = rig("run", "--shard", "1/2", "--junit", "out.xml")
    assert 2 == result.exit_code
    assert "a shard alone is not judged" in result.output
    assert 2 == rig("run", "--shard", "3/2").exit_code
