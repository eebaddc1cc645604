"""Rebuild one crash state of a run and judge it again, or run the scenario again if its guest found the state live."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from rig.campaign.record import record_live
from rig.campaign.recover import recover
from rig.campaign.verdicts import live_verdicts, verdict
from rig.campaign.verification import Job, verify
from rig.contract.clocks import AFTER_CUT, Clock
from rig.contract.errors import StoreError, UsageError
from rig.contract.faultspecs import SPECS
from rig.contract.results import LiveFinding, RecordingFacts, Verdict
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
from rig.recordings import archive
from rig.recordings.archive import Recording
from rig.recordings.recoveries import OpenRecovery, Recovery
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
    if any(finding["state"] == state_id for finding in recorded.facts.live):
        return _replay_live(run, scenario, recorded.facts, state_id, machines.recorder)
    recoveries = run.recoveries(scenario).index() or ()
    failed = next((each for each in recoveries if each.failure and each.failure["state"] == state_id), None)
    if failed:
        return _replay_life(run, scenario, recorded, failed, machines.verifier)
    if not SPECS[scenario.fault].model:
        names = ", ".join(finding["state"] for finding in recorded.facts.live[:_NAMES_MAX])
        raise UsageError(
            f"{state_id!r} is not a finding of {scenario_id}; there are {len(recorded.facts.live)}: {names}, ..."
        )
    address = address_of(scenario, state_id)
    clock = Clock(address.clock) if address.clock else None
    stored = [verdict for verdict in run.verdicts(scenario_id)[0] if verdict.state == state_id]
    with ExitStack() as stack:
        logs = stack.enter_context(recorded.open())
        timeline = Timeline(logs.first.marks)
        first = parse_content(address.first, scenario_id, logs)
        opened = stack.enter_context(open_recovery(run, scenario, address.before)) if address.way else None
        logs = opened.logs if opened else logs
        state = parse_content(address.content, scenario_id, logs) if opened else first
        content = logs.digest(state)
        life = opened.life if opened else None
        job = Job(replace(scenario, lives=opened.lives if opened else ()), logs.file, ((state.id, clock),))
        (finding,) = verify(job, machines.verifier)
        extents = state.extents(logs.first)

    def verdict_at(entry: int) -> Verdict:
        return verdict(Cut(scenario_id, state, content, entry, 0, clock, address.way), finding, life or timeline)

    # One content may have been judged at several instants; show the last one, which had the most to lose.
    fresh = verdict_at(max((verdict.entry for verdict in stored), default=(state if life else first).instant))
    same = [verdict for verdict in stored if verdict.entry == fresh.entry]
    facts = {
        "scenario": scenario_id,
        "state": f"{state_id} (content {fresh.content})",
        "cut": f"just before log entry {fresh.entry}, {fresh.acked} transactions acknowledged",
        "id": _meaning(state),
        "disk": f"{state.base_text}, and {sum(e.length_bytes for e in extents)} bytes more",
        "recording": recorded.facts.digest,
        "verdict": fresh.kind,
        "recovered": "no prefix" if fresh.recovered is None else f"{fresh.recovered} transactions",
        "lost": _loss(fresh),
        "detail": fresh.detail or "-",
        "stored": same[0].kind if same else "this state was not part of the run",
    }
    pairs = [(verdict, verdict_at(verdict.entry)) for verdict in stored]
    return Replay(facts, all((old.kind, old.recovered) == (new.kind, new.recovered) for old, new in pairs))


def _meaning(state: CrashState) -> str:
    """Return what the first word of a state's id says."""
    name = state.id.partition(".")[0]
    words = "the flush that closes the epoch of the cut" if name != "tail" else "what follows the last flush"
    return f"{name} is {words}; docs/reference/ids.md explains the rest"


def _loss(verdict: Verdict) -> str:
    if verdict.kind.is_unreadable:
        return f"all {verdict.acked} acknowledged transactions: nothing can be read"
    if verdict.kind.is_damage and not verdict.lost:
        return f"not known, because no prefix explains it; {verdict.acked} transactions were acknowledged"
    return f"{verdict.lost} transactions, {verdict.lost_virtual_ns / 1e9:.3f} virtual s"


def address_of(scenario: Scenario, state_id: str) -> Address:
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


def parse_content(content: str, scenario_id: str, logs: Logs) -> CrashState:
    """Return the crash state of a content; raise UsageError if the logs have none of that id."""
    try:
        return logs.parse(content)
    except StateIdError as error:
        raise UsageError(f"{content!r} is not a crash state of {scenario_id}: {error}") from None


def open_recovery(run: Run, scenario: Scenario, state_id: str) -> AbstractContextManager[OpenRecovery]:
    """Open the recovery from a crash state; if it was not recorded, raise UsageError listing those that were."""
    kept = run.recoveries(scenario)
    recorded = {recovery.state: recovery for recovery in kept.index() or () if not recovery.failure}
    if state_id not in recorded:
        raise UsageError(
            f"no recovery from {state_id!r} was recorded for {scenario.id}; recorded are: {', '.join(recorded)}"
        )
    return kept.open(state_id, recorded[state_id].lives)


def _replay_life(run: Run, scenario: Scenario, recorded: Recording, failed: Recovery, verifier: Template) -> Replay:
    """Let the database recover once more from the state of a failed later life, and work on."""
    assert failed.failure
    address = failed.address
    with ExitStack() as stack:
        if address.way:
            logs = stack.enter_context(open_recovery(run, scenario, address.before)).logs
        else:
            logs = stack.enter_context(recorded.open())
        state = parse_content(address.content, scenario.id, logs)
        (again,) = recover(replace(scenario, lives=failed.lives[:-1]), verifier, logs.first, [state])
    if again is None:
        raise StoreError(f"the machine in which {scenario.id} recovered from {address} was lost; try again")
    lived: LiveFinding = {
        **failed.failure, "kind": str(again.finding.kind), "recovered": again.finding.recovered,
        "detail": again.finding.detail,
    }  # fmt: skip
    old, fresh = live_verdicts(scenario.id, [failed.failure, lived])
    shown = {
        "scenario": scenario.id,
        "state": f"{address}, from which the database recovered and worked on",
        "recovered": f"{failed.lives[-1]} transactions before it failed",
        "verdict": fresh.kind,
        "detail": fresh.detail or "-",
        "stored": f"{old.kind}, in {run.folder}",
    }
    return Replay(shown, old.kind == fresh.kind)


def _replay_live(run: Run, scenario: Scenario, facts: RecordingFacts, state_id: str, recorder: Template) -> Replay:
    """Run the whole scenario again and show its finding of the same name."""
    (old,) = live_verdicts(scenario.id, [finding for finding in facts.live if finding["state"] == state_id])
    again = [finding for finding in record_live(scenario, recorder) if finding["state"] == state_id]
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
