"""Engines side by side: a line for each setting of an engine, a box for each fault, nothing if there is one engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show import enginetable
from rig.analysis.show.report import report_html
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite, verdict

LOST = [verdict(VerdictKind.LOST_SUFFIX, lost, f"lost-{lost}") for lost in (1, 7, 3)]
TORN = [verdict(VerdictKind.TORN, state=f"torn-{index}") for index in range(2)]
HARMED = [verdict(VerdictKind.FILESYSTEM_DAMAGE, state="harmed")]


def other(word: str, fault: str, *verdicts: Verdict) -> MeasuredScenario:
    settings = {"durability": word}
    found = measured_scenario(settings, verdicts, fault)
    return changed(found, engine="postgresql")


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(
        [
            *controls_that_fire(),
            measured_scenario(sqlite("wal", "full"), durable(64)),
            measured_scenario(sqlite("wal", "full"), durable(1), "torn"),
            measured_scenario(sqlite("wal", "full"), LOST, shim="eatmydata"),
            other("default", "powercut", *durable(4), *TORN),
            other("default", "ioerror-fsync", *HARMED),
            other("async", "oscrash", *durable(5), *LOST),
        ],
        60,
    )


def test_each_setting_of_each_engine_has_a_box_for_each_fault(summary: Summary) -> None:
    (found,) = enginetable.tables(summary.rows)
    boxes = {
        f"{line.engine} {line.name}": [row and (row.result_text, enginetable.loss_text(row)) for row in line.rows]
        for line in found.lines
        if not line.name.endswith("_off")
    }
    assert "ext4, device ssd-sata" == found.title
    assert ("oscrash", "powercut", "torn", "ioerror-fsync") == found.columns
    assert {
        "postgresql async": [("inconclusive", "lost 7 at most, 8 contents"), None, None, None],
        "postgresql default": [
            None, ("broken", "2 of 6 contents damaged"), None, ("inconclusive", "nothing judged"),
        ],
        "sqlite wal_full": [None, ("kept", "lost 0, 64 contents"), ("inconclusive", "lost 0, 1 content"), None],
    } == boxes  # fmt: skip
    assert ["postgresql", "postgresql"] == [line.engine for line in found.lines][:2]


def test_a_box_of_the_report_has_verdict_exposure_and_promise(summary: Summary) -> None:
    page = report_html(summary, {})
    assert "Engines side by side" in page
    assert '>kept<span class="source">lost 0, 64 contents<br>promised: loses nothing</span></td>' in page
    assert '>broken<span class="source">2 of 6 contents damaged<br>promised: loses nothing</span></td>' in page


def test_a_single_engine_has_nothing_beside_it(summary: Summary) -> None:
    rows = [row for row in summary.rows if row.outcome.scenario.engine == "sqlite"]
    assert [] == enginetable.tables(rows)
    assert "Engines side by side" not in report_html(replace(summary, rows=tuple(rows)), {})
