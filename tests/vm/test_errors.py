"""Errors in the guest: the engine sees them, and any loss of an acknowledged transaction is noticed.

Each recording is short, with little think time, so that an outage ends before the file system's journal aborts.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.promises import promise_for, violates
from rig.campaign.verdicts import live_verdicts
from rig.contract.faultspecs import ERROR_FAULTS
from rig.contract.injections import Injection
from rig.contract.results import MeasuredScenario, PlanFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.faults import EntryFlag
from rig.guest.programs.injections import Stage, strikes
from rig.machines.usermode import UserMode
from rig.planning import matrix
from tests.vm.samples import Recorder, open_recording, scenario_of, verdicts

_PROFILE = replace(matrix.profile("quick"), states_max=24, instants=8)


def brief(settings: str, fault: str, transaction_count: int = 6, seed: int = 1) -> Scenario:
    scenario = scenario_of(settings, fault=fault, seed=seed)
    return replace(scenario, workload=WorkloadSpec(transaction_count, think_ms=20, rest_ms=6000))


def breaks(scenario: Scenario, found: list[Verdict]) -> list[Verdict]:
    promise = promise_for(scenario.engine, scenario.settings, scenario.fault, scenario.shim)
    assert promise
    return [verdict for verdict in found if violates(promise, verdict)]


@pytest.mark.parametrize("fault", ERROR_FAULTS)
@pytest.mark.parametrize("settings", ["delete_full", "wal_full"])
def test_the_engine_sees_the_error_and_nothing_that_it_acknowledged_is_lost(
    settings: str, fault: str, recorded: Recorder, user_mode: UserMode
) -> None:
    scenario = brief(settings, fault)
    recording = recorded(scenario)
    live = live_verdicts(scenario.id, recording.facts.live)
    assert live, "no error was seen"
    assert {VerdictKind.DURABLE} == {verdict.kind for verdict in live}
    assert all("after SQLITE_" in verdict.detail for verdict in live)
    assert scenario.workload.transaction_count == recording.facts.transaction_count
    found = verdicts(scenario, recording, user_mode, _PROFILE)
    assert max(verdict.acked for verdict in found) == scenario.workload.transaction_count
    assert [] == breaks(scenario, found)
    assert not any(verdict.kind.is_infrastructure for verdict in found)


def trap() -> int:
    """Return a seed whose first strike lasts from the begin of a transaction until the database has been closed."""
    return next(
        seed
        for seed in range(1, 100)
        for strike in strikes(Injection.WRITE, seed, 6)[:1]
        if strike.stage is Stage.BEGIN and strike.reopens and strike.number == 3
    )


@pytest.mark.representative
@pytest.mark.parametrize(("settings", "loses"), [("wal_full", True), ("delete_full", False)])
def test_a_wal_that_only_memory_held_is_recovered_after_reopening_and_the_next_cut_breaks_the_promise(
    *, settings: str, loses: bool, recorded: Recorder, user_mode: UserMode
) -> None:
    """The pages of a failed sync count as written: a WAL is recovered from them, and the frames that follow, or a
    checkpoint of it, come after a hole on the disk."""
    scenario = brief(settings, "ioerror-write", seed=trap())
    # A WAL that restarts every third transaction needs no new blocks, whose loss would damage the file system.
    scenario = replace(scenario, tuning={**scenario.tuning, "wal_autocheckpoint": "16"})
    recording = recorded(scenario)
    (reopened,) = [one for one in recording.facts.live if one["state"].startswith("reopen-3.")]
    assert ("prefix", 3 if loses else 2) == (reopened["kind"], reopened["recovered"])
    broken = breaks(scenario, verdicts(scenario, recording, user_mode, _PROFILE))
    assert loses is bool(broken)
    assert all(verdict.kind.is_damage or verdict.recovered == 2 for verdict in broken)


def test_an_engine_without_a_journal_is_found_damaged_where_space_ends_and_the_recording_ends_there(
    recorded: Recorder,
) -> None:
    scenario = brief("off_full", "diskfull-data", 12)
    recording = recorded(scenario)
    live = live_verdicts(scenario.id, recording.facts.live)
    assert live[-1].kind.is_damage
    assert recording.facts.transaction_count < 12
    assert [] == breaks(scenario, live), "it promises nothing"


def test_an_outage_begins_and_ends_without_syncing_anything(recorded: Recorder) -> None:
    scenario = brief("wal_off", "ioerror-fsync")
    with open_recording(recorded(scenario)) as (_, log):
        begin, end = (
            next(mark.entry_index for mark in log.marks if mark.text.startswith(kind)) for kind in ("inject", "heal")
        )
        assert begin < end
        assert [] == [entry for entry in range(begin, end) if log.flags[entry] & (EntryFlag.FLUSH | EntryFlag.FUA)]
        assert any(log.flags[entry] & EntryFlag.FLUSH for entry in range(log.entry_count)), "no flush is seen at all"


def test_a_recording_that_no_strike_fell_into_turns_the_control_red(recorded: Recorder) -> None:
    fired = []
    for transaction_count in (1, 6):
        scenario = brief("wal_full", "ioerror-fsync", transaction_count)
        result = MeasuredScenario(scenario, recorded(scenario).facts, PlanFacts(0, 0, 0, 0, 0), ())
        controls = {control.name: control.fired for control in check_controls([outcome(result)])}
        fired.append(controls["errors"])
    assert [False, True] == fired
