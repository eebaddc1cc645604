"""A second cut during recovery: the first cut's promise holds; green needs a recovery cut in the middle of its work."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.dossiers.sqlite import JOURNAL_MODES, SYNCHRONOUS
from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.promises import promise_for
from rig.contract.results import MeasuredScenario, VerdictKind
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite, verdict

FAULT = "recoverycut"
DELETE_FULL = sqlite("delete", "full")


def cut_inside(one: MeasuredScenario, count: int) -> MeasuredScenario:
    return replace(one, plan=replace(one.plan, recovery_count=2, inside_count=count))


def group(inside_count: int, *scenarios: MeasuredScenario) -> list[MeasuredScenario]:
    return [*(cut_inside(one, inside_count) for one in controls_that_fire(FAULT)), *scenarios]


def test_a_second_cut_may_take_what_the_first_may_take_and_no_more() -> None:
    for journal_mode in JOURNAL_MODES:
        for synchronous in SYNCHRONOUS:
            asked = sqlite(journal_mode, synchronous)
            first, second = (promise_for("sqlite", asked, fault, "none") for fault in ("powercut", FAULT))
            assert first
            assert second
            assert (first.keeps, first.atomic, first.bound) == (second.keeps, second.atomic, second.bound)
            assert second.source


def test_losing_the_last_again_is_kept_and_losing_one_more_is_broken() -> None:
    for lost, expected in ((1, Result.KEPT), (2, Result.BROKEN)):
        rows = [verdict(VerdictKind.LOST_SUFFIX, lost, "e1.f0~e2.f0"), *durable(20)]
        assert expected is summarise(group(3, cut_inside(measured_scenario(DELETE_FULL, rows, FAULT), 3)), 5).result


def test_a_scenario_none_of_whose_recoveries_was_cut_amid_its_work_is_never_green() -> None:
    untouched = cut_inside(measured_scenario(DELETE_FULL, durable(20), FAULT), 0)
    summary = summarise(group(3, untouched), 5)
    (row,) = (row for row in summary.rows if row.outcome.measured is untouched)
    assert Result.INCONCLUSIVE is row.judgement.result
    assert any("no recovery was cut" in reason for reason in row.judgement.reasons)


def test_a_group_that_cut_no_recovery_amid_its_work_or_did_not_judge_these_cuts_proves_nothing() -> None:
    planned = cut_inside(measured_scenario(DELETE_FULL, durable(20), FAULT, state_count=21), 3)
    for scenarios, fired in ((group(3), True), (group(0), False), ([planned], False)):
        controls = {one.name: one.fired for one in check_controls([outcome(one) for one in scenarios])}
        assert fired is controls["inside"]
    assert "inside" not in {one.name for one in check_controls([outcome(one) for one in controls_that_fire()])}


def test_a_group_that_cut_no_later_life_after_an_acknowledgement_proves_nothing() -> None:
    for later_count, result in ((3, Result.KEPT), (0, Result.INCONCLUSIVE)):
        fired = [
            replace(one, plan=replace(one.plan, inside_count=later_count)) for one in controls_that_fire("secondcut")
        ]
        own = cut_inside(measured_scenario(DELETE_FULL, durable(20), "secondcut"), later_count)
        summary = summarise([*fired, own], 5)
        (row,) = (row for row in summary.rows if row.outcome.measured is own)
        assert result is row.judgement.result
        assert (later_count > 0) is {one.name: one.fired for one in summary.controls}["inside"]


def test_a_group_whose_only_control_is_that_a_recovery_was_cut_proves_nothing() -> None:
    # With a tuning, no settings are controls, only a shim is.
    alone = changed(cut_inside(measured_scenario(DELETE_FULL, durable(20), FAULT), 3), tuned="page512")
    (row,) = summarise([alone], 5).rows
    assert Result.INCONCLUSIVE is row.judgement.result
    words = "no control of sqlite on ext4, recoverycut, with page512 was measured: leave out --no-controls"
    assert words == row.judgement.reasons[0]
