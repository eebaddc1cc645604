"""Error faults: nothing counts until errors were seen, by every scenario that promises anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.campaign.verdicts import live_verdicts
from rig.contract.faultspecs import ERROR_FAULTS
from rig.contract.results import LiveFinding, MeasuredScenario, VerdictKind
from tests.unit.samples import controls_that_fire, durable, measured_scenario, sqlite

WAL_FULL = sqlite("wal", "full")
SEEN: LiveFinding = {
    "state": "reopen-3.1", "acked": 2, "issued": 3, "kind": "prefix", "recovered": 2, "detail": "after an error",
}  # fmt: skip


def group(fault: str, *live: LiveFinding) -> list[MeasuredScenario]:
    return [measured_scenario(WAL_FULL, durable(200), fault, live=live), *controls_that_fire(fault)]


@pytest.mark.parametrize("fault", ERROR_FAULTS)
def test_a_scenario_that_promises_anything_and_saw_no_error_is_no_result_and_neither_is_its_group(fault: str) -> None:
    assert Result.KEPT is summarise(group(fault, SEEN), 5).result
    assert Result.INCONCLUSIVE is summarise(group(fault), 5).result
    blind = measured_scenario(sqlite("delete", "full"), durable(200), fault)
    summary = summarise([*group(fault, SEEN), blind], 5)
    assert Result.INCONCLUSIVE is summary.result
    (control,) = [control for control in summary.controls if control.name == "errors"]
    assert control.fired is False
    assert "1 seen, none by sqlite-ext4-delete_full" in control.what


def test_a_program_that_says_which_transactions_failed_has_seen_errors() -> None:
    fault = ERROR_FAULTS[0]
    blind, *controls = group(fault)
    told = replace(blind, recording=replace(blind.recording, error_count=2))
    assert Result.KEPT is summarise([told, *controls], 5).result


def test_settings_that_promise_nothing_need_not_see_an_error_but_somebody_must() -> None:
    fault = ERROR_FAULTS[0]
    controls = controls_that_fire(fault)
    names = {control.name: control.fired for control in check_controls([outcome(one) for one in controls])}
    assert names == {"delete_off": True, "wal_off": True, "errors": False}
    told = [replace(one, recording=replace(one.recording, live=(SEEN,))) for one in controls]
    assert all(control.fired for control in check_controls([outcome(one) for one in told]))


@pytest.mark.parametrize("fault", ERROR_FAULTS)
def test_without_the_settings_that_must_lose_nothing_is_kept(fault: str) -> None:
    alone = [measured_scenario(WAL_FULL, durable(200), fault, live=(SEEN,))]
    assert Result.INCONCLUSIVE is summarise(alone, 5).result
    assert Result.INCONCLUSIVE is summarise([*alone, *controls_that_fire(fault)[:1]], 5).result


@pytest.mark.parametrize(
    ("settings", "recovered", "result"),
    [
        (WAL_FULL, 2, Result.KEPT),
        (WAL_FULL, 3, Result.KEPT),
        (WAL_FULL, 1, Result.BROKEN),
        (sqlite("delete", "full"), 1, Result.KEPT),
        (sqlite("delete", "full"), 0, Result.BROKEN),
        (sqlite("wal", "off"), 0, Result.KEPT),
    ],
)
def test_what_is_gone_after_an_error_is_lost_although_no_power_was_cut(
    settings: dict[str, str], recovered: int, result: Result
) -> None:
    fault = ERROR_FAULTS[0]
    found = live_verdicts("", [{**SEEN, "recovered": recovered}])
    scenarios = [measured_scenario(settings, [*durable(200), *found], fault, live=(SEEN,))]
    others = [one for one in controls_that_fire(fault) if one.scenario.settings != settings]
    rows = summarise([*scenarios, *others], 5).rows
    (row,) = [row for row in rows if row.outcome.measured == scenarios[0]]
    # The loss controls wal_off and delete_off are tested elsewhere.
    assert (result is Result.BROKEN) is (row.judgement.result is Result.BROKEN)


@pytest.mark.parametrize(
    ("settings", "fault", "is_told"),
    [
        (WAL_FULL, "ioerror-write", True),
        (WAL_FULL, "ioerror-fsync", False),
        (sqlite("delete", "full"), "ioerror-write", False),
    ],
)
def test_a_broken_promise_comes_with_what_it_means_and_whose_work_it_is(
    settings: dict[str, str], fault: str, *, is_told: bool
) -> None:
    for recovered in (0, 2):
        found = live_verdicts("", [{**SEEN, "recovered": recovered}])
        scenarios = [
            measured_scenario(settings, [*durable(200), *found], fault, live=(SEEN,)),
            *controls_that_fire(fault),
        ]
        summary = summarise(scenarios, 5)
        assert (Result.BROKEN if recovered == 0 else Result.KEPT) is summary.result
        for text in (table_text(summary), report_html(summary, {})):
            assert (is_told and recovered == 0) is ("A loss here has two causes" in text)
            assert (recovered == 0) is ("Taken from the power cut" in text)


def test_a_file_system_that_came_back_damaged_is_not_blamed_on_the_database() -> None:
    (found,) = live_verdicts("", [{**SEEN, "kind": "file-system-damage", "recovered": None}])
    assert VerdictKind.FILESYSTEM_DAMAGE is found.kind
    rows = summarise([measured_scenario(WAL_FULL, [*durable(200), found], ERROR_FAULTS[0], live=(SEEN,))], 5).rows
    assert Result.BROKEN is not rows[0].judgement.result
