"""The table of known bugs matches exactly the releases that have each bug, and a run names the bugs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import KnownBug
from rig.analysis.dossiers.sqlite import KNOWN_BUGS
from rig.analysis.judging import known_bugs
from rig.analysis.judging.outcome import summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.contract.results import MeasuredScenario
from tests.unit import samples

TRUNCATE, RESET, SAVEPOINT = KNOWN_BUGS


def scenario_of(version: str, settings: dict[str, str], **read_back: str) -> MeasuredScenario:
    made = samples.measured_scenario(settings, samples.durable(3))
    facts = replace(made.recording, engine_version=f"{version} 2014-01-01 abc", settings={**settings, **read_back})
    return replace(made, recording=facts)


@pytest.mark.parametrize(
    ("bug", "version", "expected"),
    [
        (TRUNCATE, "3.8.5", True), (TRUNCATE, "3.8.7", True), (TRUNCATE, "3.8.7.1", False), (TRUNCATE, "3.8.9", False),
        (TRUNCATE, "3.40.1", False),
        (RESET, "3.6.23", False), (RESET, "3.7.0", True), (RESET, "3.51.2", True), (RESET, "3.51.3", False),
        (RESET, "3.44.5", True), (RESET, "3.44.6", False), (RESET, "3.45.0", True), (RESET, "3.50.6", True),
        (SAVEPOINT, "3.40.1", True), (SAVEPOINT, "3.50.1", True), (SAVEPOINT, "3.50.2", False),
        (SAVEPOINT, "3.51.0", False),
        (RESET, "3.50.7", False), (RESET, "3.51.0", True), (RESET, "3.53.0", False),
    ],
)  # fmt: skip
def test_a_release_is_affected_or_not(bug: KnownBug, version: str, *, expected: bool) -> None:
    assert expected == bug.affects(version)


@given(st.text())
def test_whatever_an_engine_calls_its_version_is_answered(version: str) -> None:
    for bug in KNOWN_BUGS:
        assert bug.affects(version) in (True, False)


def test_a_run_with_an_affected_release_names_the_bug_in_table_and_report() -> None:
    summary = summarise([scenario_of("3.8.5", samples.sqlite("truncate", "full"), library="so-1")], 1)
    for text in (table_text(summary, 400), report_html(summary, {})):
        assert "sqlite 3.8.5, source id 2014-01-01 abc, library so-1" in text
        assert "3.8.5 has the known bug truncate-not-synced, corrected in 3.8.7.1" in text
        assert "it affects truncate_full" in text


def test_a_bug_that_only_a_workload_can_meet_is_named_with_that_workload_alone() -> None:
    plain = scenario_of("3.46.1", samples.sqlite("wal", "full"))
    summary = summarise([plain, samples.changed(plain, workload="rough")], 1)
    (line,) = known_bugs.warnings(summary)
    assert "3.46.1 has the known bug wal-savepoint, corrected in 3.50.2" in line
    assert line.endswith("it affects wal_full.rough")


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("3.8.9", samples.sqlite("truncate", "full")),
        ("3.8.5", samples.sqlite("truncate", "normal")),
        ("3.8.5", samples.sqlite("delete", "full")),
        # One connection cannot race itself.
        ("3.51.2", samples.sqlite("wal", "full")),
    ],
)
def test_a_run_that_cannot_meet_a_bug_is_not_told_of_it(version: str, settings: dict[str, str]) -> None:
    summary = summarise([scenario_of(version, settings)], 1)
    assert [] == known_bugs.warnings(summary)
    assert "known bug" not in table_text(summary, 400)
    assert f"sqlite {version}, source id 2014-01-01 abc" in table_text(summary, 400)
