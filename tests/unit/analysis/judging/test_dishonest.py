"""The arm of dishonest disks: noticed and unnoticed damage, and the controls of every arm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.dossiers import control_settings
from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.table import detection_text, table_text
from rig.contract.faultspecs import DISHONEST_FAULTS, FORGETTING_FAULTS
from rig.contract.results import Verdict, VerdictKind
from rig.faults import Holds
from tests.unit.samples import durable, measured_scenario, sqlite, verdict

WAL_FULL = sqlite("wal", "full")
NOTICED = [VerdictKind.CORRUPT, VerdictKind.UNOPENABLE, VerdictKind.FILESYSTEM_DAMAGE]
UNNOTICED = [VerdictKind.TORN, VerdictKind.HOLE, VerdictKind.STALE, VerdictKind.FOREIGN]
DAMAGING = [fault for fault in DISHONEST_FAULTS if fault != "lyingflush"]


def rows(*kinds: VerdictKind) -> list[Verdict]:
    return [verdict(kind, state=f"s{rank}") for rank, kind in enumerate(kinds)]


def test_a_complaint_detects_and_what_is_wrong_without_a_complaint_is_silent() -> None:
    one = outcome(measured_scenario(WAL_FULL, rows(*NOTICED, *UNNOTICED), "bitflip"))
    assert (2, 1, 4) == (one.detected_count, one.filesystem_detected_count, one.silent_count)
    lost = outcome(measured_scenario(WAL_FULL, [verdict(VerdictKind.LOST_SUFFIX, 2), *durable(5)], "bitflip"))
    assert (0, 1) == (lost.detected_count, lost.silent_count)
    trouble = outcome(
        measured_scenario(
            WAL_FULL, rows(VerdictKind.HANG, VerdictKind.KERNEL_PANIC, VerdictKind.INCONCLUSIVE), "bitrot"
        )
    )
    assert (0, 0, 0) == (trouble.detected_count, trouble.filesystem_detected_count, trouble.silent_count)


@pytest.mark.parametrize("fault", DAMAGING)
@pytest.mark.parametrize("kind", [*NOTICED, *UNNOTICED])
def test_damage_that_reached_nothing_anywhere_is_no_result(fault: str, kind: VerdictKind) -> None:
    blind = summarise([measured_scenario(WAL_FULL, durable(200), fault)], 5)
    assert Result.INCONCLUSIVE is blind.rows[0].judgement.result
    assert ["reach"] == [control.name for control in blind.controls]
    seeing = summarise([measured_scenario(WAL_FULL, [*durable(200), verdict(kind, state="bad")], fault)], 5)
    assert Result.NOT_JUDGED is seeing.rows[0].judgement.result
    # Nobody promises anything there, so there is nothing that was kept.
    assert (Result.INCONCLUSIVE, 3) == (seeing.result, seeing.exit_code)


@pytest.mark.parametrize("blind", ["wal", "delete"])
def test_a_lying_flush_that_costs_a_full_setting_nothing_is_no_result(blind: str) -> None:
    loss = [*durable(9), verdict(VerdictKind.LOST_SUFFIX, 1)]
    scenarios = [
        measured_scenario(sqlite(mode, "full"), durable(9) if mode == blind else loss, "lyingflush")
        for mode in ("wal", "delete")
    ]
    assert {Result.INCONCLUSIVE} == {row.judgement.result for row in summarise(scenarios, 5).rows}
    both = summarise([measured_scenario(sqlite(mode, "full"), loss, "lyingflush") for mode in ("wal", "delete")], 5)
    assert {Result.NOT_JUDGED} == {row.judgement.result for row in both.rows}


@pytest.mark.parametrize("fault", FORGETTING_FAULTS)
def test_every_disk_that_forgets_has_the_settings_that_must_lose_as_controls(fault: str) -> None:
    assert ("delete_off", "wal_off") == control_settings("sqlite", fault)
    names = [control.name for control in check_controls([outcome(measured_scenario(WAL_FULL, durable(9), fault))])]
    # Only faults that reorder or tear must leave damage; the others must only show that they took effect.
    more = {"powercut": ["damage"], "torn": ["damage"], "discard": ["late"], "shorn": ["garbage"]}
    more |= {"killcut": ["restart"], "recoverycut": ["inside"], "secondcut": ["inside"], "twodisk": ["apart"]}
    assert ["delete_off", "wal_off", *more.get(fault, [])] == names


@pytest.mark.parametrize(("fault", "holds"), [("discard", Holds.DISCARD), ("shorn", Holds.GARBAGE)])
def test_a_fault_that_leaves_something_in_a_content_proves_nothing_until_a_state_holds_it(
    fault: str, holds: Holds
) -> None:
    lost = verdict(VerdictKind.LOST_SUFFIX, 1, "lost")
    controls = [measured_scenario(sqlite(mode, "off"), [lost], fault) for mode in ("delete", "wal")]
    for word, fired in (("", False), (Holds.FLIP, False), (holds, True)):
        good = measured_scenario(WAL_FULL, [*durable(9), verdict(holds=word)], fault)
        (own,) = [
            one
            for one in check_controls([outcome(one) for one in (good, *controls)])
            if one.name in ("late", "garbage")
        ]
        assert fired is own.fired
        assert fired or Result.INCONCLUSIVE is summarise([good, *controls], 5).result


@pytest.mark.parametrize(("apart_count", "result"), [(0, Result.INCONCLUSIVE), (1, Result.KEPT)])
def test_two_disks_prove_nothing_until_one_was_cut_before_the_other(apart_count: int, result: Result) -> None:
    lost = verdict(VerdictKind.LOST_SUFFIX, 1, "lost")
    controls = [measured_scenario(sqlite(mode, "off"), [lost], "twodisk") for mode in ("delete", "wal")]
    good = measured_scenario(WAL_FULL, durable(9), "twodisk")
    good = replace(good, plan=replace(good.plan, apart_count=apart_count))
    assert result is summarise([good, *controls], 5).result


def test_detection_is_shown_for_dishonest_disks_only() -> None:
    bad = measured_scenario(WAL_FULL, [*rows(*NOTICED, *UNNOTICED[:2]), *durable(9)], "bitflip")
    good = measured_scenario(WAL_FULL, durable(9), "powercut")
    assert ("2 / 1 / 2", "-") == (detection_text(outcome(bad)), detection_text(outcome(good)))
    assert "2 / 1 / 2" in table_text(summarise([bad], 5))
    assert "silent" not in table_text(summarise([good], 5))
    assert "2 / 1 / 2" in report_html(summarise([bad, good], 5), {})
    assert "silent" not in report_html(summarise([good], 5), {})
