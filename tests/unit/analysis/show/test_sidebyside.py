"""File systems side by side: a cell for each scenario, a blank for what was not run, nothing if there is only one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show import sidebyside
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite, verdict

LOST = [verdict(VerdictKind.LOST_SUFFIX, lost, f"lost-{lost}") for lost in (1, 7, 3)]
TORN = [verdict(VerdictKind.TORN, state=f"torn-{index}") for index in range(2)]
HARMED = [verdict(VerdictKind.FILESYSTEM_DAMAGE, state="harmed")]


def on(filesystem: str, synchronous: str, *verdicts: Verdict) -> MeasuredScenario:
    return changed(measured_scenario(sqlite("wal", synchronous), list(verdicts)), filesystem=filesystem)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(
        [
            on("ext4", "full", *durable(5)),
            on("ext3", "full", *durable(4), *HARMED),
            on("ext4", "normal", *durable(5), *LOST),
            on("ext2", "normal", *durable(5), *LOST, *TORN),
            on("ext2", "full", *HARMED),
        ],
        60,
    )


def test_each_setting_has_a_cell_for_each_file_system(summary: Summary) -> None:
    (found,) = sidebyside.comparisons(summary.rows)

    cells = {line.name: [sidebyside.text(row) for row in line.rows] for line in found.lines}
    assert ("ext2", "ext3", "ext4") == found.columns
    assert {
        "wal_full": ["nothing judged (0), file system 1", "inconclusive (4), file system 1", "inconclusive (5)"],
        "wal_normal": ["damaged 2 (10)", "", "loses 7 (8)"],
    } == cells


def test_kept_is_what_its_controls_allow_to_be_called_so() -> None:
    full = measured_scenario(sqlite("wal", "full"), durable(70))
    for controls, words in (((), "inconclusive (70)"), (controls_that_fire(), "kept (70)")):
        rows = summarise([full, *controls], 60).rows
        assert words == next(sidebyside.text(row) for row in rows if row.outcome.settings_name == "wal_full")


def test_table_and_report_show_them(summary: Summary) -> None:
    text, page = table_text(summary, 160), report_html(summary, {})

    assert re.search(r"wal_normal +damaged 2 \(10\) +loses 7 \(8\)", text)
    assert sidebyside.CAPTION in text
    assert "File systems side by side" in page
    assert re.search(r'>damaged 2 \(10\)<br><span class="soft">[\d.,]+ tx/s</span></td>', page)


def test_damage_before_the_first_acknowledgement_is_told_apart_where_nothing_is_promised_yet() -> None:
    verdicts = [
        *durable(5),
        replace(TORN[0], acked=3),
        replace(TORN[1], acked=0),
        replace(TORN[1], acked=0, state="once more"),
    ]
    files = changed(
        measured_scenario(sqlite("wal", "full"), verdicts), engine="files", settings={"pattern": "append-fsync"}
    )
    # Damage is damage of a database from the beginning.
    database = measured_scenario(sqlite("wal", "full"), verdicts)
    cells = [sidebyside.text(summarise([one], 60).rows[0]) for one in (files, database)]
    assert ["damaged 1 (7), new 1", "damaged 2 (7)"] == cells
    # Nor is it promised on a file system that keeps nothing.
    assert "damaged 1 (7), new 1" == sidebyside.text(summarise([changed(files, filesystem="ext2")], 60).rows[0])


def test_a_single_file_system_has_nothing_beside_it(summary: Summary) -> None:
    rows = [row for row in summary.rows if row.outcome.scenario.filesystem == "ext4"]

    assert [] == sidebyside.comparisons(rows)
