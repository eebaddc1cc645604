"""Which recoveries of a scenario are recorded, and where each of them is cut.

First cuts are crash states of a power cut, spread over the recording. Candidates whose recovery wrote to the files of
the database are taken first, then those that wrote most. Each recovery is cut like a recording, by the power-cut model:
the disk is honest during recovery too. From some of the states that stopped a recovery in the middle, the next recovery
is recorded and cut as well.

The directory of the database is synced after it was closed (`rig.guest.verifier`): what a recovery has removed may then
be gone for good, and what it has written without a sync may be lost.

Nothing is acknowledged during recovery. So every state of a recovery is judged at the instant of the first cut:
whatever was acknowledged by then must still be there.

If the recovered database works on (`rig.contract.faultspecs.FaultSpec.later_count`), its later life is cut once it has
shown its content. What it showed must still be there, and whatever the later life has acknowledged since; what the cut
before it took by right stays lost. The states that begin a later life are drawn from those in which the
workload has transactions left, one of each disk content. The power-cut model knows only the writes of the later life:
they alone may be lost. An engine that fails while it works on is a finding of its own, without a cut: `life-ADDRESS`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.contract.errors import RecordingError
from rig.contract.faultspecs import SPECS
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import LiveFinding, PlanFacts
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Fault, Logs, Plan, StateIdError, plan
from rig.faults.choosing.selection import evenly_spaced
from rig.faults.choosing.strata import stratified_sample
from rig.faults.log.arrays import Int64Array
from rig.planning.cuts import Cut
from rig.planning.matrix import Profile
from rig.recordings.recoveries import OpenRecovery, Recoveries, Recovery
from rig.recordings.timeline import Timeline, last_number

_FIRSTS_MIN, _FIRSTS_MAX = 8, 50
_STATES_MIN = 20
# For one in this many recoveries the recovery from one of its own crash states is recorded too.
_DEEPER = 3
# Candidates recorded for each recovery that is kept.
_CANDIDATES = 2
# The name of a finding in a later life begins with this, then the address of the state from which that life began.
_LIFE = "life-"


def first_count(profile: Profile) -> int:
    """Return how many first cuts of a scenario have their recovery recorded and cut."""
    few = min(_FIRSTS_MIN, profile.side_states_max // 10)
    return min(max(few, profile.side_states_max // 20), _FIRSTS_MAX)


def states_max(profile: Profile, recovery: Recovery) -> int:
    """Return how many states of a recovery are checked; half as many if it recovers from a cut recovery itself.

    A later life writes more than a recovery, and is cut twice as often.
    """
    count = max(_STATES_MIN, profile.states_max // 100) * (2 if recovery.lives else 1)
    return count // 2 if recovery.address.way else count


def candidates(scenario: Scenario, profile: Profile, logs: Logs) -> Sequence[CrashState]:
    """Return the first cuts whose recoveries are recorded; `first_count` of them are kept."""
    states, count = _first_plan(scenario, profile, logs).states, _CANDIDATES * first_count(profile)
    if not (later_count := SPECS[scenario.fault].later_count):
        return stratified_sample(states, count, random.Random(f"firsts {scenario.seed}"))
    timeline = Timeline(logs.first.marks)
    acked_max = max(0, scenario.workload.transaction_count - later_count)
    contents = {logs.digest(state): state for state in states if timeline.acked_count(state.instant) <= acked_max}
    draw = random.Random(f"later lives {scenario.seed} {scenario.id}")
    chosen = draw.sample(sorted(contents.values(), key=_place), min(count, len(contents)))
    return sorted(chosen, key=_place)


def recovery_of(
    scenario: Scenario, opened: OpenRecovery, finding: Finding, files: tuple[tuple[int, int], ...]
) -> Recovery | None:
    """Return a recovery that was just recorded; None if a later life was due and the database did not come back."""
    if not SPECS[scenario.fault].later_count:
        return Recovery(opened.state, files)
    marks = opened.log.marks[1:]
    shown = last_number(marks, "recovered")
    if shown is None:
        return None
    lives = (*scenario.lives, shown)
    if finding.kind in {FindingKind.PREFIX, FindingKind.KEPT_OPEN}:
        return Recovery(opened.state, files, lives)
    acked, issued = (number for kind in ("ack", "begin") for number in [last_number(marks, kind) or shown])
    failure: LiveFinding = {
        "state": f"{_LIFE}{opened.state}", "acked": acked, "issued": issued, "kind": str(finding.kind),
        "recovered": None, "detail": finding.detail,
    }  # fmt: skip
    return Recovery(opened.state, (), lives, failure)


def require_some(scenario: Scenario, count: int, recoveries: Sequence[Recovery]) -> None:
    """Raise RecordingError if none of `count` recoveries succeeded, or no later life acknowledged anything.

    A user's program may not know how to work on; it is not accused of that.
    """
    failed = [each.failure for each in recoveries if each.failure and each.failure["acked"] == each.lives[-1]]
    if len(failed) == len(recoveries):
        why = f"; in the first later life {failed[0]['detail']}" if failed else ""
        raise RecordingError(f"none of {count} recoveries of {scenario.id} could be recorded{why}")


def failures(kept: Recoveries) -> list[LiveFinding]:
    """Return how engines failed in later lives."""
    return [recovery.failure for recovery in kept.index() or () if recovery.failure]


def deeper(profile: Profile, firsts: Sequence[Recovery]) -> Sequence[Recovery]:
    """Return the recoveries for which the recovery from one of their crash states is recorded too."""
    return evenly_spaced([first for first in firsts if not first.failure], max(1, first_count(profile) // _DEEPER))


def amid(scenario: Scenario, profile: Profile, opened: OpenRecovery, recovery: Recovery) -> Sequence[CrashState]:
    """Return a crash state well into the work of a recovery, from which to record the next; empty without one."""
    planned = _later_plan(scenario, profile, opened, recovery)
    inside = [state for state in planned.states if is_inside(state, opened, recovery)]
    return inside[len(inside) // 2 :][:1]


def cuts(
    scenario: Scenario, profile: Profile, logs: Logs, kept: Recoveries, stack: ExitStack
) -> tuple[list[tuple[OpenRecovery, list[Cut]]], PlanFacts]:
    """Return each recorded recovery of a scenario, its log left open on the stack, and its cuts; deterministic.

    Raise RecordingError if a recovery is damaged, missing, or not of this recording.
    """
    index = kept.index()
    if index is None:
        raise RecordingError(f"the recoveries of {scenario.id} were not all recorded")
    logs_of = {"": logs}
    by_recovery: list[tuple[OpenRecovery, list[Cut]]] = []
    plans: list[Plan] = []
    inside_count = 0
    for recovery in index:
        if recovery.failure:
            continue
        address = recovery.address
        if address.before not in logs_of:
            raise RecordingError(f"the index of {scenario.id} lacks the recovery from {address.before}")
        parent = logs_of[address.before]
        start = parent.digest(_parse(address.content, parent))
        opened = stack.enter_context(kept.open(recovery.state, recovery.lives))
        logs_of[recovery.state] = opened.logs
        digest = opened.logs.digest
        if digest(opened.start()) != start:
            raise RecordingError(f"the recovery from {recovery.state} starts on another content: not of this recording")
        entry = _parse(address.first, logs).instant
        planned = _later_plan(scenario, profile, opened, recovery)
        # A state in which the recovery changed nothing equals the state that it recovered from.
        planned = replace(planned, chosen=tuple(state for state in planned.chosen if digest(state) != start))
        inside_count += sum(is_inside(state, opened, recovery) for state in planned.states)
        plans.append(planned)
        way = (*address.way, address.content)
        by_recovery.append(
            (
                opened,
                [
                    Cut(scenario.id, state, digest(state), state.instant if opened.life else entry, 0, way=way)
                    for state in planned.states
                ],
            )
        )
    return by_recovery, _facts(_first_plan(scenario, profile, logs), plans, inside_count)


def is_inside(state: CrashState, opened: OpenRecovery, recovery: Recovery) -> bool:
    """Return whether in this state a recovery had begun to write to the database's files and had more to write.

    For a later life: whether it had acknowledged a transaction.
    """
    if opened.life:
        return opened.life.acked_count(state.instant) > opened.life.setup.number
    written, in_files = writes(opened, recovery)
    has_landed = (written < state.base_end) | np.isin(written, state.pieces(opened.log)[:, 0])
    return bool((in_files & has_landed).any() and not has_landed.all())


def writes(opened: OpenRecovery, recovery: Recovery) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Return the entries that a recovery wrote, and for each whether it touches a file of the database."""
    log = opened.log
    written = np.flatnonzero(log.payload_bytes)
    written = written[written > opened.first_entry]
    begins, ends = log.offset_bytes[written], log.offset_bytes[written] + log.payload_bytes[written]
    in_files = np.zeros(len(written), dtype=bool)
    for offset, length in recovery.files:
        in_files |= (begins < offset + length) & (ends > offset)
    return written, in_files


def _place(state: CrashState) -> tuple[int, str]:
    """Return a key to sort states so that a base only moves forward."""
    return state.base_end, state.id


def _first_plan(scenario: Scenario, profile: Profile, logs: Logs) -> Plan:
    timeline = Timeline(logs.first.marks)
    return plan(
        Fault.of(SPECS[scenario.fault].model), logs, first_entry=timeline.setup.entry_index,
        states_max=profile.states_max, seed=scenario.seed, first_ack=timeline.first_ack_entry,
    )  # fmt: skip


def _later_plan(scenario: Scenario, profile: Profile, opened: OpenRecovery, recovery: Recovery) -> Plan:
    # The first transaction of a later life meets what the cut has left behind, so its states have a share of their own.
    first_ack = opened.life.first_ack_entry if opened.life else 0
    return plan(
        Fault.of(SPECS[scenario.fault].model), opened.logs, first_entry=opened.begin_entry,
        states_max=states_max(profile, recovery), seed=scenario.seed, first_ack=first_ack,
    )  # fmt: skip


def _parse(content: str, logs: Logs) -> CrashState:
    try:
        return logs.parse(content)
    except StateIdError as error:
        raise RecordingError(f"a recovery was recorded from {content}, which is no crash state: {error}") from None


def _facts(first: Plan, plans: Sequence[Plan], inside_count: int) -> PlanFacts:
    """Sum up the plans. The epochs of the recording count as sampled: few of their states have their recovery cut."""
    return PlanFacts(
        state_count=sum(len(plan.states) for plan in plans),
        epoch_count=first.epoch_count + sum(plan.epoch_count for plan in plans),
        epochs_exhaustive=sum(plan.epochs_exhaustive for plan in plans),
        epochs_sampled=first.epoch_count + sum(plan.epochs_sampled for plan in plans),
        instant_count=0,
        recovery_count=len(plans),
        inside_count=inside_count,
        epochs_doubtful=first.epochs_doubtful + sum(plan.epochs_doubtful for plan in plans),
    )
