"""What CI shows of a run: one case for each scenario, figures, losses with replay lines, and limits that GitHub has."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show.ci.annotations import ANNOTATIONS_MAX, workflow_commands
from rig.analysis.show.ci.cases import Case, CaseEnd, cases
from rig.analysis.show.ci.junit import junit_xml
from rig.analysis.show.ci.stepsummary import SUMMARY_BYTES_MAX, escape_markdown, step_summary
from rig.contract.results import VerdictKind
from tests.unit.samples import changed, controls_that_fire, durable, matrix, measured_scenario, sqlite, verdict

EVIL = "<b>|`*\x00\x1b[31m\r\n::error::&amp;]]>"
BROKEN = "sqlite-ext4-wal_full_powercut"


@pytest.fixture(scope="module")
def summary() -> Summary:
    """One promise kept, one broken, one inconclusive; nothing is promised for the controls."""
    losing = [verdict(VerdictKind.LOST_SUFFIX, 2, f"e0{number}:i4", detail=EVIL) for number in range(7)]
    return summarise(
        [
            *controls_that_fire(),
            measured_scenario(sqlite("wal", "full"), [*durable(150), *losing]),
            measured_scenario(sqlite("wal", "extra"), durable(150)),
            measured_scenario(sqlite("delete", "extra"), durable(2)),
        ],
        100,
    )


def elements(summary: Summary) -> dict[str, ET.Element]:
    root = ET.fromstring(junit_xml(cases(summary, {}, []), "rig"))  # noqa: S314 - our own text
    return {str(case.get("name")): case for case in root.iter("testcase")}


def test_junit_has_one_test_for_each_scenario_and_the_right_counts(summary: Summary) -> None:
    root = ET.fromstring(junit_xml(cases(summary, {"lost": "the machine hung"}, ["a file"]), "rig"))  # noqa: S314
    (suite,) = root.iter("testsuite")
    names = [case.get("name") for case in root.iter("testcase")]
    assert [row.outcome.scenario.id for row in summary.rows] == names[:-2]
    assert ("7", "1", "3", "2") == tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped"))
    for element, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(sum(1 for _ in root.iter(element)))


def test_a_broken_promise_fails_with_its_loss_and_a_line_to_replay(summary: Summary) -> None:
    (failure,) = elements(summary)[BROKEN].iter("failure")
    assert f"rig replay {BROKEN} e00:i4" in str(failure.text)
    assert "lost-suffix, lost 2 of 20 acknowledged; 7 such states: " in str(failure.text)
    assert str(failure.get("message")).startswith("broken: 7 of 157 states break the promise")


def test_an_inconclusive_scenario_is_an_error_and_a_kept_one_passes(summary: Summary) -> None:
    found = elements(summary)
    (error,) = found["sqlite-ext4-delete_extra_powercut"].iter("error")
    assert "too little exposure" in str(error.get("message"))
    assert {"properties"} == {child.tag for child in found["sqlite-ext4-wal_extra_powercut"]}


def test_figures_are_properties(summary: Summary) -> None:
    case = elements(summary)[BROKEN]
    figures = {str(one.get("name")): str(one.get("value")) for one in case.iter("property")}
    assert ("broken", "2", "157") == (figures["result"], figures["lost_max"], figures["states"])
    assert float(figures["transactions_per_virtual_s"]) > 0


def test_a_sabotaged_scenario_passes_if_it_breaks_and_never_fails() -> None:
    spared = measured_scenario(sqlite("wal", "full"), durable(150), shim="eatmydata")
    losing = [verdict(VerdictKind.LOST_SUFFIX, 2, "e1"), *durable(150)]
    broken = measured_scenario(sqlite("wal", "extra"), losing, shim="eatmydata")
    ends = {case.name: case.answer for case in cases(summarise([spared, broken], 100), {}, [])}
    assert {spared.scenario.id: CaseEnd.SKIPPED, broken.scenario.id: CaseEnd.PASSED} == ends


@given(st.text(), st.text(), st.lists(st.text()))
def test_any_words_of_an_engine_make_xml_that_can_be_read(name: str, reason: str, lines: list[str]) -> None:
    case = Case(name, name, CaseEnd.FAILED, reason, tuple(lines))
    (element,) = ET.fromstring(junit_xml([case], name)).iter("testcase")  # noqa: S314
    if name.isalnum():
        assert name == element.get("name")


def test_annotations_are_at_most_ten_with_failures_first_and_the_rest_counted() -> None:
    unanswered = [Case(f"u{number}", "", CaseEnd.UNANSWERED, "no answer") for number in range(8)]
    failed = [Case(f"f{number}", "", CaseEnd.FAILED, "broken") for number in range(5)]
    passed = [Case("p", "", CaseEnd.PASSED)]
    lines = workflow_commands([*unanswered, *passed, *failed])
    assert ANNOTATIONS_MAX == len(lines)
    assert [f"::error title=f{number}::broken" for number in range(5)] == lines[:5]
    assert lines[-1].startswith("::warning title=4 more scenarios::")
    assert [] == workflow_commands(passed)
    assert ANNOTATIONS_MAX == len(workflow_commands([*failed, *failed]))


@given(st.text(), st.text())
def test_an_annotation_is_one_line_whatever_an_engine_says(name: str, reason: str) -> None:
    (line,) = workflow_commands([Case(name, "", CaseEnd.FAILED, reason)])
    assert not re.search(r"[\r\n]", line)
    properties, _, message = line.removeprefix("::error title=").partition("::")
    assert not re.search("[:,]", properties)
    assert reason == message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")


def test_the_summary_has_headline_losses_replay_lines_and_every_scenario(summary: Summary) -> None:
    text = step_summary(summary, cases(summary, {}, []))
    assert text.startswith("### A promise was broken by wal\\_full under powercut")
    assert f"```sh\nrig replay {BROKEN} e00:i4" in text
    assert "#### Failed: 1\n" in text
    assert "#### No answer: 1\n" in text
    for row in summary.rows:
        assert f"| {escape_markdown(row.outcome.settings_name)} |" in text
    assert "Controls: 3 of 3 fired." in text


def test_what_an_engine_says_cannot_break_the_markdown(summary: Summary) -> None:
    text = step_summary(summary, cases(summary, {"x": EVIL}, [EVIL]))
    outside = re.sub(r"```sh\n.*?\n```", "", text, flags=re.DOTALL)
    assert "<b>" not in outside
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert {9} == {len(re.findall(r"(?<!\\)\|", row)) - 1 for row in rows}


def test_a_summary_of_a_huge_run_keeps_below_the_limit_and_says_what_is_left_out() -> None:
    many = summarise([changed(one, tuned=f"tuning{number}") for number in range(40) for one in matrix()], 100)
    found = cases(many, {f"s{number}": "x" * 3000 for number in range(400)}, [])
    text = step_summary(many, found)
    assert len(text.encode()) <= SUMMARY_BYTES_MAX
    assert re.search(r"\n\d+ parts more did not fit here; the report has them\.\n$", text)
    assert text.startswith("### ")
    assert "did not fit" not in step_summary(many, found, bytes_max=10_000_000)
