"""The audit: what was planned is built whole and held against the checker, and a state that fails voids its cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.outcome import summarise
from analysis.report import report_html
from faults import CrashState, Fault, WriteLog, epochs
from faults.state import landable, make_state
from rig import matrix
from rig.audit import Auditor, contents
from rig.cuts import Cut
from rig.errors import LegalityError
from rig.results import PlanFacts
from rig.store import Run
from tests.unit.disks import CELL, DISK_CELLS, Op, content_of, everything, rebuild, run_of
from tests.unit.samples import cell, durable, sqlite

FLUSH = [Op("flush-begin"), Op("flush-end")]
OPS = [
    Op("write", 0, 2, 1), Op("write", 4, 2, 1), *FLUSH, Op("mark"), Op("fua", 12, 1, 1), Op("mark"),
    Op("write", 0, 2, 2), Op("write", 8, 2, 2), *FLUSH, Op("write", 14, 1, 3), *FLUSH,
]  # fmt: skip
(POWERCUT,) = matrix.select(["sqlite-ext4-wal_full_powercut"])


def cut(state: CrashState, entry: int | None = None) -> Cut:
    return Cut(POWERCUT.id, state, state.id, state.instant if entry is None else entry, 0)


def test_whole_contents_are_those_that_a_verifier_builds_and_leave_nothing_behind(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        states = sorted(everything(Fault.TORN, log).states, key=lambda state: state.base_end)
        for state, device in zip(states, contents(log, states), strict=True):
            assert rebuild(log, state) == content_of(device[: DISK_CELLS * CELL])
            assert not device[DISK_CELLS * CELL :].any()


@pytest.mark.parametrize("fault", ["powercut", "torn", "shorn", "oscrash", "plp", "discard"])
def test_a_sample_of_what_is_planned_is_audited_and_all_of_it_if_there_is_less(tmp_path: Path, fault: str) -> None:
    (scenario,) = matrix.select([f"sqlite-ext4-wal_full_{fault}"])
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        cuts = [cut(state) for state in everything(Fault(fault), log).states]
        auditor = Auditor(log)
        assert (3, len(cuts)) == (auditor.audit(scenario, cuts, 3), auditor.audit(scenario, cuts, 10**6))


def test_a_disk_that_lies_is_not_audited(tmp_path: Path) -> None:
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_lyingflush"])
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        cuts = [cut(state) for state in everything(Fault.LYINGFLUSH, log).states]
        assert 0 == Auditor(log).audit(scenario, cuts, 10**6)


def test_a_state_that_answers_for_too_many_acknowledgements_is_the_rigs_fault_and_named(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        first, second, *_ = epochs(log)
        for state, entry in ((make_state(first, 0), second.end), (make_state(second, 0), second.end)):
            with pytest.raises(LegalityError, match="the rig is wrong") as caught:
                Auditor(log).audit(POWERCUT, [cut(state, entry)], 1)
            assert POWERCUT.id in str(caught.value)
            assert state.id in str(caught.value)
            assert "sector " in str(caught.value)


def test_a_cut_that_answers_for_fewer_acknowledgements_than_it_could_is_fine(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        second = epochs(log)[1]
        late = make_state(second, 1, whole=landable(second))
        assert 1 == Auditor(log).audit(POWERCUT, [cut(late, second.begin)], 1)


def test_a_void_cell_is_a_failure_and_no_result(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"cells": [POWERCUT.id]})
    run.write_plan(POWERCUT, PlanFacts(1, 1, 1, 0, 0))
    run.void(POWERCUT, "sector 7")
    assert {POWERCUT.id: "sector 7"} == run.failures()
    assert ([], []) == run.results()


def test_the_report_says_how_many_states_were_proven_legal() -> None:
    one = cell(sqlite("wal", "full"), durable(5))
    shown = report_html(summarise([replace(one, plan=replace(one.plan, audited_count=7))], 1), {}, "run")
    assert "7 states proven legal by an independent checker" in shown
    assert "proven legal" not in report_html(summarise([one], 1), {}, "run")
