"""The history: nights are added once, found again in SQL, and each scenario shows when it changed and what with it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.history import historypage
from rig.analysis.history.nights import Night, add, query_history
from rig.analysis.history.trends import POINTS_MAX, trends, turn_lines
from rig.analysis.judging.outcome import summarise
from rig.contract.errors import StoreError, UsageError
from rig.contract.results import MeasuredScenario, VerdictKind
from rig.front import cli
from tests.unit.samples import changed, controls_that_fire, durable, matrix, measured_scenario, sqlite, verdict
from tests.unit.storedruns import store

FULL = "sqlite-ext4-wal_full_powercut"
FIRST = datetime(2026, 11, 1, 3, tzinfo=UTC)
NIGHTS, SCENARIOS = 1000, 500


def kept(version: str = "3.46.1") -> list[MeasuredScenario]:
    full = measured_scenario(sqlite("wal", "full"), durable(150))
    return [*controls_that_fire(), replace(full, recording=replace(full.recording, engine_version=version))]


def broken(version: str) -> list[MeasuredScenario]:
    *controls, full = kept(version)
    return [*controls, replace(full, verdicts=(*full.verdicts, verdict(VerdictKind.LOST_SUFFIX, 2, "x")))]


def night(number: int, scenarios: Sequence[MeasuredScenario], failures: dict[str, str] | None = None) -> Night:
    began = FIRST + timedelta(days=number)
    return Night(f"run-{number}", began, "quick", f"commit-{number}", "0.2.0", summarise(scenarios, 60), failures or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, scenarios in enumerate((kept(), kept(), broken("3.99"), broken("3.99"))):
        add(night(number, scenarios), tmp_path / "history")
    return tmp_path / "history"


def test_the_night_of_a_change_is_named_with_the_versions_that_changed(folder: Path) -> None:
    (trend,) = [one for one in trends(folder) if one.scenario == FULL]
    assert (4, "broken", 2, 151) == (trend.night_count, trend.shown, trend.lost_max, trend.file_contents)
    assert trend.turn
    assert ((FIRST + timedelta(days=2)).replace(tzinfo=None), "run-2") == (trend.turn.began, trend.turn.run)
    assert ("kept -> broken", "lost max 0 -> 2") == trend.turn.what
    assert ("build 3.46.1 -> 3.99", "commit commit-1 -> commit-2") == trend.turn.versions
    assert (0, 0, 2, 2) == trend.losses


def test_the_terminal_says_when_it_changed_on_one_line(folder: Path) -> None:
    (line,) = turn_lines(trends(folder))
    change = "2026-11-03: kept -> broken; lost max 0 -> 2"
    versions = "build 3.46.1 -> 3.99; commit commit-1 -> commit-2"
    assert f"{FULL} changed on {change}; with it: {versions}" == line


def test_a_scenario_that_never_changed_says_so(folder: Path) -> None:
    found = {one.scenario: one for one in trends(folder, ["*_off_*"])}
    assert {"sqlite-ext4-delete_off_powercut", "sqlite-ext4-wal_off_powercut"} == set(found)
    assert {None} == {one.turn for one in found.values()}


def test_the_same_run_added_twice_is_one_night(folder: Path) -> None:
    before = sorted(folder.rglob("*.parquet"))
    add(night(3, broken("3.99")), folder)
    assert before == sorted(folder.rglob("*.parquet"))


def test_what_was_not_measured_is_in_the_history(folder: Path) -> None:
    add(night(9, controls_that_fire(), {FULL: "the machine was lost"}), folder)
    (trend,) = trends(folder, [FULL])
    assert (5, "not measured", None) == (trend.night_count, trend.shown, trend.lost_max)
    assert trend.turn
    assert "broken -> not measured" in trend.turn.what


def test_sql_has_all_scenarios_and_controls(folder: Path) -> None:
    columns, rows = query_history(
        folder, "SELECT scenario, count(*) AS nights FROM scenarios GROUP BY ALL ORDER BY ALL"
    )
    assert (["scenario", "nights"], 3) == (columns, len(rows))
    assert {4} == {count for _, count in rows}
    _, fired = query_history(folder, "SELECT DISTINCT state FROM controls")
    assert [("fired",)] == fired
    with pytest.raises(UsageError, match=r"(?s)nosuch.*the tables are scenarios and controls"):
        query_history(folder, "SELECT * FROM nosuch")
    with pytest.raises(StoreError, match="is not a history"):
        query_history(folder / "nowhere", "SELECT 1")


def rig(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)), env={"COLUMNS": "140"})


def test_runs_add_themselves_and_the_commands_show_them(tmp_path: Path) -> None:
    run, history = store(tmp_path / "run", kept()), tmp_path / "nights"
    for _ in range(2):
        assert 0 == rig("report", "--run-dir", run, "--history", history).exit_code
    assert 1 == len(list(history.glob("scenarios/*.parquet")))
    shown = rig("history", "*wal_full*", "--history", history, "--out", tmp_path / "page.html")
    assert (0, 1) == (shown.exit_code, shown.output.count(FULL)), shown.output
    counted = rig("query", "SELECT count(*) AS n FROM scenarios", "--history", history, "--format", "json")
    assert '[\n {\n  "n": 3\n }\n]\n' == counted.output
    assert 2 == rig("query", "SELEC", "--history", history).exit_code
    assert 3 == rig("history", "--history", tmp_path / "nowhere").exit_code
    page = (tmp_path / "page.html").read_text()
    assert FULL in page
    assert not re.search(r"(?:src|href)=|@import|url\(", page)


def test_the_page_is_the_same_for_the_same_history(folder: Path) -> None:
    facts = {"nights": "4"}
    assert historypage.page_html(trends(folder), facts) == historypage.page_html(trends(folder), facts)


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=POINTS_MAX))
def test_every_figure_of_a_curve_is_inside_its_picture(points: list[float | None]) -> None:
    for stretch in historypage.spark(points):
        pairs = [tuple(map(float, point.split(","))) for point in stretch.split()]
        assert len(pairs) > 1
        assert all(0 <= x <= historypage._WIDTH and 0 <= y <= historypage._HEIGHT for x, y in pairs)


@pytest.mark.slow
def test_a_thousand_nights_of_five_hundred_scenarios_cost_no_more_by_the_night_than_a_hundred(tmp_path: Path) -> None:
    """The nights differ in their time, loss and speed, as the same run on another day does."""
    many = [changed(one, tuned=f"tuning{number}") for number in range(-(-SCENARIOS // 16)) for one in matrix()[:16]]
    first = pq.read_table(add(night(0, many[:SCENARIOS]), tmp_path))
    few = 0.0
    for number in range(1, NIGHTS):
        if number == NIGHTS // 10:
            few = _shown_in_s(tmp_path, number)
        began = pa.array(
            [FIRST.replace(tzinfo=None) + timedelta(days=number)] * SCENARIOS, first.schema.field("began").type
        )
        lost = pc.add(first["lost_max"], number % 7)
        table = first.set_column(1, "began", began).set_column(first.column_names.index("lost_max"), "lost_max", lost)
        pq.write_table(table.cast(first.schema), tmp_path / "scenarios" / f"{number:04}.parquet")
    assert _shown_in_s(tmp_path, NIGHTS) < 15 * few


def _shown_in_s(folder: Path, night_count: int) -> float:
    """Show the history; return the processor time that it took, DuckDB's threads included."""
    begin = time.process_time()
    found = trends(folder)
    page = historypage.page_html(found, {"nights": str(night_count)})
    taken_s = time.process_time() - begin
    assert (SCENARIOS, {night_count}) == (len(found), {one.night_count for one in found})
    assert night_count < NIGHTS or page.count("<polyline") > 2 * SCENARIOS
    return taken_s
