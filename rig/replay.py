"""Rebuild one crash state of a run and judge it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faults import ContentIndex, CrashState, StateIdError, WriteLog, epochs, parse_state
from rig import recording
from rig.cuts import Cut
from rig.errors import StoreError, UsageError
from rig.guest.clock import AFTER_CUT, Clock
from rig.results import Verdict
from rig.scenario import Scenario
from rig.store import Run
from rig.timeline import Timeline
from rig.verification import Finding, verdict, verify
from rig.vm.template import Template


@dataclass(frozen=True)
class Replay:
    """What a replay showed; `agrees` is whether the verdict is the stored one."""

    facts: Mapping[str, object]
    agrees: bool


def replay(run: Run, cell: str, state_id: str, verifier: Template) -> Replay:
    """Rebuild a crash state from the recording of its cell and judge it; raise UsageError for an id that is none."""
    scenario = run.scenario(cell)
    recorded = recording.load(run.recording_folder(scenario))
    if recorded is None:
        raise StoreError(f"the recording of {cell} is gone from {run.folder}")
    found: list[Finding] = []
    stored = [one for one in run.verdicts(cell)[0] if one.state == state_id]
    plain_id, clock = _clock_of(scenario, state_id)
    with recorded.unpacked() as path, WriteLog.open(path) as log:
        try:
            state = parse_state(plain_id, log, epochs(log))
        except StateIdError as error:
            raise UsageError(f"{state_id!r} is no crash state of {cell}: {error}") from None
        timeline = Timeline(log.marks)
        cut = Cut(cell, state, ContentIndex(log).digest(state), _entry(state, timeline, stored), 0, clock)
        verify(scenario, verifier, path, log, [state], lambda _, finding: found.append(finding), clocks=[clock])
        fresh = verdict(cut, found[0], timeline)
        extents = state.extents(log)
    stored = [one for one in stored if one.acked == fresh.acked]
    facts = {
        "cell": cell,
        "state": f"{state_id} (content {fresh.content})",
        "cut": f"just before log entry {cut.entry}, {fresh.acked} transactions acknowledged",
        "disk": f"all {state.base_end} entries before the epoch, and {sum(e.length_bytes for e in extents)} bytes more",
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


def _entry(state: CrashState, timeline: Timeline, stored: Sequence[Verdict]) -> int:
    """Return the instant to judge a state at: its own, or where it stood for a cut instant only, the worst of those."""
    acked = {one.acked for one in stored}
    if not acked or timeline.acked(state.instant) in acked:
        return state.instant
    return min(state.instant, timeline.acks[max(acked)].entry_index)
