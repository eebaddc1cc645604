"""The grid: every scenario of a run has its place and its mark, and shims have none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers.sqlite import JOURNAL_MODES, SYNCHRONOUS
from rig.analysis.judging.outcome import summarise
from rig.analysis.show import grid
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.contract.faultspecs import FAULTS, SPECS, FaultClass
from rig.contract.results import MeasuredScenario, VerdictKind
from tests.unit.samples import durable, measured_scenario, sqlite, verdict

SCENARIOS = st.sets(
    st.tuples(st.sampled_from(JOURNAL_MODES), st.sampled_from(SYNCHRONOUS), st.sampled_from(FAULTS)), min_size=1
)


def a_scenario(journal_mode: str, synchronous: str, fault: str) -> MeasuredScenario:
    return measured_scenario(sqlite(journal_mode, synchronous), durable(3), fault)


@given(SCENARIOS)
def test_every_scenario_stands_where_its_fault_and_its_settings_meet(wanted: set[tuple[str, str, str]]) -> None:
    (found,) = grid.grids(summarise([a_scenario(*one) for one in wanted], 1).rows)
    placed = {
        (column, level, line.fault): row.outcome.scenario
        for line in found.lines
        for column, rows in zip(found.columns, line.columns, strict=True)
        for level, row in zip(found.levels, rows, strict=True)
        if row
    }
    assert wanted == set(placed)
    assert all(one == (*c.settings.values(), c.fault) for one, c in placed.items())
    arms = [list(FaultClass).index(line.fault_class) for line in found.lines]
    assert sorted(arms) == arms
    assert all(line.fault_class is SPECS[line.fault].fault_class for line in found.lines)


def test_the_marks_tell_kept_broken_doubtful_and_unpromised_apart() -> None:
    broken = measured_scenario(sqlite("wal", "full"), [*durable(3), verdict(VerdictKind.TORN, state="bad")], "oscrash")
    rows = summarise([broken, a_scenario("wal", "off", "bitrot"), a_scenario("wal", "full", "plp")], 1).rows
    marks = {row.outcome.scenario.fault: grid.mark(row) for row in rows}
    assert {"oscrash": "X", "plp": "?", "bitrot": "?"} == marks, "no control fired"
    assert " " == grid.mark(None)


def test_a_run_of_many_faults_is_a_grid_on_the_terminal_and_on_the_page() -> None:
    scenarios = [a_scenario("wal", "full", fault) for fault in FAULTS]
    few, many = summarise(scenarios[: grid.FAULTS_MIN - 1], 1), summarise(scenarios, 1)
    assert grid.LEGEND not in table_text(few)
    assert grid.LEGEND in table_text(many, 100)
    assert all(len(line) <= 80 for line in table_text(many, 80).split(grid.LEGEND)[0].splitlines())
    page = report_html(many, {})
    assert all(f'<th scope="row">{fault}</th>' in page for fault in FAULTS)
    assert 'class="grid"' not in report_html(summarise(scenarios[:1], 1), {})


def test_what_a_shim_did_is_not_held_against_the_engine() -> None:
    (found,) = grid.grids(summarise([a_scenario("wal", "full", "torn"), shim_scenario()], 1).rows)
    assert ["torn"] == [line.fault for line in found.lines]


def shim_scenario() -> MeasuredScenario:
    return measured_scenario(sqlite("wal", "full"), durable(3), "plp", "eatmydata")
