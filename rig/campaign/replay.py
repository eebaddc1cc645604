"""Rebuild one crash state of a run and judge it again, or run the scenario again if its guest found the state live."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from rig.campaign.record import record_live
from rig.campaign.verification import Job, verify
from rig.contract.arms import SPECS
from rig.contract.clocks import AFTER_CUT, Clock
from rig.contract.errors import StoreError, UsageError
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import (
    Address,
    CrashState,
    Logs,
    StateIdError,
)
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.planning.cuts import Cut
from rig.planning.verdicts import live_verdicts, verdict
from rig.recordings import archive
from rig.recordings.recoveries import OpenRecovery
from rig.recordings.timeline import Timeline
from rig.store import Run

_NAMES_MAX = 3


@dataclass(frozen=True)
class Replay:
    """The result of a replay; `agrees` says whether the verdict equals the stored one."""

    facts: Mapping[str, object]
    agrees: bool


def replay(run: Run, scenario_id: str, state_id: str, machines: Machines) -> Replay:
    """Rebuild a crash state from its recording and judge it; raise UsageError if the id is invalid."""
    scenario = run.scenario(scenario_id)
    recorded = archive.load(run.recording_folder(scenario))
    if recorded is None:
        raise StoreError(f"the recording of {scenario_id} is gone from {run.folder}")
    if any(one["state"] == state_id for one in recorded.facts.live):
        return _replay_live(run, scenario, recorded.facts, state_id, machines.recorder)
    if not SPECS[scenario.fault].model:
        names = ", ".join(one["state"] for one in recorded.facts.live[:_NAMES_MAX])
        raise UsageError(
            f"{state_id!r} is not a finding of {scenario_id}; there are {len(recorded.facts.live)}: {names}, ..."
        )
    address = _address(scenario, state_id)
    clock = Clock(address.clock) if address.clock else None
    stored = [one for one in run.verdicts(scenario_id)[0] if one.state == state_id]
    with ExitStack() as stack:
        logs = stack.enter_context(recorded.opened())
        timeline = Timeline(logs.first.marks)
        first = _state(address.first, scenario_id, logs)
        if address.way:
            logs = stack.enter_context(_recovery(run, scenario, address.before)).logs
        state = _state(address.content, scenario_id, logs) if address.way else first
        content = logs.digest(state)
        job = Job(scenario, logs.file, ((state.id, clock),))
        (finding,) = verify(job, machines.verifier)
        extents = state.extents(logs.first)

    def judged(entry: int) -> Verdict:
        return verdict(Cut(scenario_id, state, content, entry, 0, clock, address.way), finding, timeline)

    # One content may have been judged at several instants; show the last one, which had the most to lose.
    fresh = judged(max((one.entry for one in stored), default=first.instant))
    same = [one for one in stored if one.entry == fresh.entry]
    facts = {
        "scenario": scenario_id,
        "state": f"{state_id} (content {fresh.content})",
        "cut": f"just before log entry {fresh.entry}, {fresh.acked} transactions acknowledged",
        "disk": f"{state.base_text}, and {sum(e.length_bytes for e in extents)} bytes more",
        "recording": recorded.facts.digest,
        "verdict": fresh.kind,
        "recovered": "no prefix" if fresh.recovered is None else f"{fresh.recovered} transactions",
        "lost": f"{fresh.lost} transactions, {fresh.lost_virtual_ns / 1e9:.3f} virtual s",
        "detail": fresh.detail or "-",
        "stored": same[0].kind if same else "this state was not part of the run",
    }
    pairs = [(one, judged(one.entry)) for one in stored]
    return Replay(facts, all((old.kind, old.recovered) == (new.kind, new.recovered) for old, new in pairs))


def _address(scenario: Scenario, state_id: str) -> Address:
    """Parse the address of a state; raise UsageError if it is invalid or names a clock that the fault does not have."""
    try:
        address = Address.parse(state_id)
    except StateIdError as error:
        raise UsageError(f"{state_id!r} is not a crash state of {scenario.id}: {error}") from None
    choices = [AFTER_CUT[scenario.fault], Clock.RIGHT] if scenario.fault in AFTER_CUT else [""]
    if address.clock not in choices:
        example = " or ".join(str(replace(address, clock=clock)) for clock in choices)
        raise UsageError(f"{state_id!r} is not a crash state of {scenario.id}: its addresses look like {example}")
    return address


def _state(content: str, scenario_id: str, logs: Logs) -> CrashState:
    try:
        return logs.parse(content)
    except StateIdError as error:
        raise UsageError(f"{content!r} is not a crash state of {scenario_id}: {error}") from None


def _recovery(run: Run, scenario: Scenario, state_id: str) -> AbstractContextManager[OpenRecovery]:
    """Open the recovery from a crash state; if it was not recorded, raise UsageError listing those that were."""
    kept = run.recoveries(scenario)
    recorded = [one.state for one in kept.index() or ()]
    if state_id not in recorded:
        raise UsageError(
            f"no recovery from {state_id!r} was recorded for {scenario.id}; recorded are: {', '.join(recorded)}"
        )
    return kept.opened(state_id)


def _replay_live(run: Run, scenario: Scenario, facts: RecordingFacts, state_id: str, recorder: Template) -> Replay:
    """Run the whole scenario again and show its finding of the same name."""
    (old,) = live_verdicts(scenario.id, [one for one in facts.live if one["state"] == state_id])
    again = [one for one in record_live(scenario, recorder) if one["state"] == state_id]
    if not again:
        raise StoreError(f"{scenario.id} was run again and did not reach {state_id}: the run took another course")
    (fresh,) = live_verdicts(scenario.id, again)
    is_same = recorder.identity == facts.template
    shown = {
        "scenario": scenario.id,
        "state": f"{state_id}, found while the machine kept running",
        "run again": "in a clone of the same template"
        if is_same
        else "in a clone of another template than the recording",
        "acknowledged": f"{fresh.acked} transactions, {again[0]['issued']} begun",
        "verdict": fresh.kind,
        "recovered": "no prefix" if fresh.recovered is None else f"{fresh.recovered} transactions",
        "lost": f"{fresh.lost} transactions",
        "detail": fresh.detail,
        "stored": f"{old.kind}, in {run.folder}",
    }
    return Replay(shown, (old.kind, old.recovered, old.acked) == (fresh.kind, fresh.recovered, fresh.acked))
