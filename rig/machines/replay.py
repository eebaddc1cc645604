"""Rebuild one crash state of a run and judge it again; what was found in a running guest is made to happen again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from rig.contract.arms import SPECS
from rig.contract.clocks import AFTER_CUT, Clock
from rig.contract.errors import StoreError, UsageError
from rig.contract.findings import Finding
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import ContentIndex, CrashState, JointState, StateIdError, WriteLog, epochs, parse_joint, parse_state
from rig.faults.twodisk import JointIndex
from rig.machines.campaign import Machines
from rig.machines.template import Template
from rig.machines.verification import live_verdicts, verdict, verify
from rig.planning.cuts import Cut
from rig.recordings import recording
from rig.recordings.recording import record_live
from rig.recordings.recovery import SEPARATOR, OpenRecovery
from rig.recordings.timeline import Timeline
from rig.recordings.twodisk import two_logs
from rig.store import Run

_NAMES_MAX = 3


@dataclass(frozen=True)
class Replay:
    """What a replay showed; `agrees` is whether the verdict is the stored one."""

    facts: Mapping[str, object]
    agrees: bool


def replay(run: Run, cell: str, state_id: str, machines: Machines) -> Replay:
    """Rebuild a crash state from the recording of its cell and judge it; raise UsageError for an id that is none."""
    scenario = run.scenario(cell)
    recorded = recording.load(run.recording_folder(scenario))
    if recorded is None:
        raise StoreError(f"the recording of {cell} is gone from {run.folder}")
    if any(one["state"] == state_id for one in recorded.facts.live):
        return _replay_live(run, scenario, recorded.facts, state_id, machines.recorder)
    if not SPECS[scenario.fault].model:
        names = ", ".join(one["state"] for one in recorded.facts.live[:_NAMES_MAX])
        raise UsageError(f"{state_id!r} is no finding of {cell}; there are {len(recorded.facts.live)}: {names}, ...")
    found: list[Finding] = []
    stored = [one for one in run.verdicts(cell)[0] if one.state == state_id]
    plain_id, clock = _clock_of(scenario, state_id)
    first, (before, _, last) = plain_id.partition(SEPARATOR)[0], plain_id.rpartition(SEPARATOR)
    with ExitStack() as stack:
        path = stack.enter_context(recorded.unpacked())
        log = stack.enter_context(WriteLog.open(path))
        timeline = Timeline(log.marks)
        state = _state(first, cell, log, SPECS[scenario.fault].model)
        entry = _entry(state, timeline, stored)
        if before:
            opened = stack.enter_context(_recovery(run, cell, before))
            path, log = opened.path, opened.log
            state = replace(_state(last, cell, log, ""), id=plain_id)
        cut = Cut(cell, state, _content(state, log), entry, 0, clock)
        verify(
            scenario, machines.verifier, path, log, [state], lambda _, finding: found.append(finding), clocks=[clock]
        )
        fresh = verdict(cut, found[0], timeline)
        extents = state.extents(log)
    stored = [one for one in stored if one.acked == fresh.acked]
    facts = {
        "cell": cell,
        "state": f"{state_id} (content {fresh.content})",
        "cut": f"just before log entry {cut.entry}, {fresh.acked} transactions acknowledged",
        "disk": f"{state.base_text}, and {sum(e.length_bytes for e in extents)} bytes more",
        "recording": recorded.facts.digest,
        "verdict": fresh.kind,
        "recovered": "no prefix" if fresh.recovered is None else f"{fresh.recovered} transactions",
        "lost": f"{fresh.lost} transactions, {fresh.lost_virtual_ns / 1e9:.3f} virtual s",
        "detail": fresh.detail or "-",
        "stored": stored[0].kind if stored else "this state was not part of the run",
    }
    agrees = all((one.kind, one.recovered) == (fresh.kind, fresh.recovered) for one in stored)
    return Replay(facts, agrees)


def _clock_of(scenario: Scenario, state_id: str) -> tuple[str, Clock | None]:
    """Split the clock off the id of a state, where it is part of the fault."""
    plain_id, at, name = state_id.partition("@")
    if scenario.fault not in AFTER_CUT and not at:
        return plain_id, None
    choices = [AFTER_CUT[scenario.fault], Clock.RIGHT] if scenario.fault in AFTER_CUT else []
    if name not in choices:
        expected = " or ".join(f"@{clock}" for clock in choices) or "no clock"
        raise UsageError(f"{state_id!r} is no crash state of {scenario.id}: its id ends in {expected}")
    return plain_id, Clock(name)


def _state(state_id: str, cell: str, log: WriteLog, model: str) -> CrashState:
    try:
        if model == "twodisk":
            return parse_joint(state_id, two_logs(log))
        return parse_state(state_id, log, epochs(log))
    except StateIdError as error:
        raise UsageError(f"{state_id!r} is no crash state of {cell}: {error}") from None


def _recovery(run: Run, cell: str, state_id: str) -> AbstractContextManager[OpenRecovery]:
    """Open the recovery from a crash state; raise UsageError, with those there are, if it was not recorded."""
    kept = run.recoveries(cell)
    recorded = [one.state for one in kept.index() or ()]
    if state_id not in recorded:
        raise UsageError(f"no recovery from {state_id!r} was recorded for {cell}; those are: {', '.join(recorded)}")
    return kept.opened(state_id)


def _replay_live(run: Run, scenario: Scenario, facts: RecordingFacts, state_id: str, recorder: Template) -> Replay:
    """Run the whole scenario again and show what it finds at the same place."""
    (old,) = live_verdicts(scenario.id, [one for one in facts.live if one["state"] == state_id])
    again = [one for one in record_live(scenario, recorder) if one["state"] == state_id]
    if not again:
        raise StoreError(f"{scenario.id}, run again, does not come to {state_id}: it did not take the same course")
    (fresh,) = live_verdicts(scenario.id, again)
    is_same = recorder.identity == facts.template
    shown = {
        "cell": scenario.id,
        "state": f"{state_id}, found while the machine went on running",
        "run again": "in a clone of the same template" if is_same else "on another template than the recording's",
        "acknowledged": f"{fresh.acked} transactions, {again[0]['issued']} begun",
        "verdict": fresh.kind,
        "recovered": "no prefix" if fresh.recovered is None else f"{fresh.recovered} transactions",
        "lost": f"{fresh.lost} transactions",
        "detail": fresh.detail,
        "stored": f"{old.kind}, in {run.folder}",
    }
    return Replay(shown, (old.kind, old.recovered, old.acked) == (fresh.kind, fresh.recovered, fresh.acked))


def _content(state: CrashState, log: WriteLog) -> str:
    return JointIndex(state.logs).digest(state) if isinstance(state, JointState) else ContentIndex(log).digest(state)


def _entry(state: CrashState, timeline: Timeline, stored: Sequence[Verdict]) -> int:
    """Return the instant to judge a state at: its own, or where it stood for a cut instant only, the worst of those."""
    acked = {one.acked for one in stored}
    if not acked or timeline.acked(state.instant) in acked:
        return state.instant
    return min(state.instant, timeline.acks[max(acked)].entry_index)
