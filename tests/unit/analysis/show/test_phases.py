"""What was tried of the phases of a commit: shown next to exposure, and never rounded up to everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.outcome import Result, Summary, summarise
from rig.analysis.show import phases
from rig.analysis.show.report import report_html
from rig.analysis.show.table import headline, table_text
from rig.contract.results import MeasuredScenario, PhaseFacts
from tests.unit import samples
from tests.unit.samples import changed

SINGLE = PhaseFacts("data written again", 40, 1, 0, 1, 1)


def scenario_of(synchronous: str, pairs_tried: int, write_count: int = 5, fault: str = "powercut") -> MeasuredScenario:
    made = samples.measured_scenario(samples.sqlite("truncate", synchronous), samples.durable(3), fault)
    commit = PhaseFacts("journal x5", 39, write_count, pairs_tried, 4, 3)
    return replace(made, plan=replace(made.plan, phases=(SINGLE, commit)))


@pytest.fixture(scope="module")
def summary() -> Summary:
    torn = samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(3), "torn")
    return summarise([scenario_of("full", 20), scenario_of("normal", 7), torn], 1)


@pytest.mark.parametrize(
    ("pairs_tried", "write_count", "text"),
    [(20, 5, "100 % of 20"), (0, 5, "0 % of 20"), (9899, 100, "99 % of 9900"), (9, 10, "10 % of 90")],
)
def test_pairs_are_counted_and_not_all_is_not_everything(pairs_tried: int, write_count: int, text: str) -> None:
    (row,) = summarise([scenario_of("full", pairs_tried, write_count)], 1).rows
    assert text == phases.pairs_text(row.outcome)


def test_the_table_names_the_scenarios_of_which_least_was_tried(summary: Summary) -> None:
    line = "pairs of writes tried, the first landed and the second lost: "
    assert f"{line}truncate_normal (powercut) 35 % of 20, truncate_full (powercut) 100 % of 20\n" in table_text(
        summary, 2000
    )
    many = summarise(
        [scenario_of("full", rank, fault=fault) for rank, fault in enumerate(("powercut", "clockback"))], 1
    )
    (told,) = phases.lines(summarise([*(row.outcome.measured for row in many.rows)] * 3, 1))
    assert told.endswith(", and more of 2 others")


def test_the_report_has_every_phase_with_pairs_and_a_dash_for_faults_without(summary: Summary) -> None:
    page = report_html(summary, {})
    assert 2 == page.count('<th scope="row">journal x5</th>')
    assert SINGLE.what not in page
    assert '<td class="n" data-label="pairs tried">7 of 20</td>' in page
    assert '<td class="n" data-label="pairs or tears tried">-</td>' in page
    assert '<td class="n" data-label="pairs or tears tried">35 % of 20</td>' in page


def torn(tears_tried: int) -> MeasuredScenario:
    made = samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(3), "torn")
    return replace(
        made, plan=replace(made.plan, phases=(PhaseFacts("new data x4", 9, 4, 0, 0, 0, 31, 16, tears_tried),))
    )


def test_tears_have_a_line_of_their_own_and_no_pairs() -> None:
    summary = summarise([scenario_of("full", 20), torn(12)], 1)
    assert [
        "pairs of writes tried, the first landed and the second lost: truncate_full (powercut) 100 % of 20",
        "plain tears tried, one write torn and the others landed or lost: wal_full (torn) 75 % of 16 tears",
    ] == phases.lines(summary)
    page = report_html(summary, {})
    assert '<td class="n" data-label="tears tried">12 of 16</td>' in page
    assert '<td class="n" data-label="states">31</td>' in page


def test_the_answer_says_what_few_pairs_leave_open_and_what_more_states_would_try() -> None:
    few = scenario_of("full", 2)
    few = replace(few, plan=replace(few.plan, states_for_pairs=640, pairs_then=19))
    answer = table_text(summarise([few, scenario_of("normal", 3), scenario_of("extra", 18)], 1), 2000).splitlines()[-1]
    assert (
        "Few pairs of writes were tried: 10 % of 20 by truncate_full under powercut, and less than 50 % by 1 more. "
        "A flush that is missing between two of the other writes may not show. `--states 640` tries 19 of them."
    ) in answer
    assert "Few pairs" not in table_text(summarise([scenario_of("full", 10)], 1), 2000)
    # Nothing is promised at OFF.
    assert "Few pairs" not in table_text(summarise([scenario_of("full", 10), scenario_of("off", 1)], 1), 2000)


def test_the_answer_says_what_few_tears_leave_open_of_a_promise_that_was_kept() -> None:
    # The samples have no control, so a promise is kept only by a row that says so.
    summary = summarise([torn(3)], 1)
    (row,) = summary.rows
    kept = replace(summary, rows=(replace(row, judgement=replace(row.judgement, result=Result.KEPT)),))
    assert phases.few_tears(kept) == (
        " Few writes were torn alone: 18 % of 16 tears were tried by wal_full under torn. A checksum that misses one of"
        " the others may not show; `--states` tries more."
    )
    assert "Few writes were torn alone" in headline(kept)
    broken = replace(summary, rows=(replace(row, judgement=replace(row.judgement, result=Result.BROKEN)),))
    assert "" == phases.few_tears(broken)
    (row,) = summarise([torn(8)], 1).rows
    enough = replace(summary, rows=(replace(row, judgement=replace(row.judgement, result=Result.KEPT)),))
    assert "" == phases.few_tears(enough)


def test_mutants_are_not_told_of() -> None:
    mutant = changed(scenario_of("full", 20), shim="drop-journal1")
    assert [] == phases.lines(summarise([mutant], 1))


def test_without_pairs_nothing_is_said() -> None:
    summary = summarise([samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(3))], 1)
    assert [] == phases.lines(summary)
    assert "Phases of a commit" not in report_html(summary, {})
