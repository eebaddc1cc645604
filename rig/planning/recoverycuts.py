"""Which recoveries of a cell are recorded, and where each of them is cut.

First cuts are crash states of a power cut, spread over the recording; of those candidates whose recovery wrote to the
files of the database the first are taken, else those that wrote most. Each recovery is cut like a recording, by the
power-cut model: the disk is honest during recovery too. Some of the states that stopped a recovery amid its work are
recovered from under record, and that recovery is cut as well.

Nothing is acknowledged during recovery. So every state of a recovery is judged at the instant of the first cut:
whatever was acknowledged then must still be there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.contract.arms import SPECS
from rig.contract.errors import RecordingError
from rig.contract.findings import FindingKind
from rig.contract.results import PlanFacts
from rig.contract.scenario import Scenario
from rig.faults import ContentIndex, CrashState, Fault, Plan, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.log import Int64Array
from rig.faults.selection import evenly_spaced
from rig.machines.template import Template
from rig.machines.verification import Recovered, recover
from rig.planning.cuts import Cut
from rig.planning.matrix import Profile
from rig.recordings.recovery import SEPARATOR, OpenRecovery, Recoveries, Recovery, self_contained
from rig.recordings.timeline import Timeline

_FIRSTS_MIN, _FIRSTS_MAX = 8, 50
_STATES_MIN = 20
# One of so many recoveries has one of its own crash states recovered from under record.
_DEEPER = 3
# Candidates recorded for each recovery that is kept.
_CANDIDATES = 2


def first_count(profile: Profile) -> int:
    """Return how many first cuts of a cell have their recovery cut."""
    return min(max(_FIRSTS_MIN, profile.side_states_max // 20), _FIRSTS_MAX)


def states_max(profile: Profile, recovery: Recovery) -> int:
    """Return how many states of a recovery are checked; half as many if it recovers from a cut recovery itself."""
    count = max(_STATES_MIN, profile.states_max // 100)
    return count // 2 if SEPARATOR in recovery.state else count


def record(  # noqa: PLR0917 - each is of another type, so none can stand in another's place unseen
    scenario: Scenario,
    profile: Profile,
    verifier: Template,
    log: WriteLog,
    kept: Recoveries,
    stopped: threading.Event | None = None,
) -> None:
    """Record the recoveries of a cell, and then recoveries from cuts of these; raise RecordingError if one is void."""
    count = first_count(profile)
    planned = _first_plan(scenario, profile, log)
    candidates = evenly_spaced(planned.states, _CANDIDATES * count)
    found = recover(scenario, verifier, log.path, log, candidates, stopped)
    firsts = _save(kept, candidates, found, log, count)
    if not firsts:
        raise RecordingError(f"none of {len(candidates)} recoveries of {scenario.id} could be recorded")
    deeper: list[Recovery] = []
    for first in evenly_spaced(firsts, max(1, count // _DEEPER)):
        with kept.opened(first.state) as opened:
            planned = _later_plan(scenario, profile, opened, first)
            inside = [state for state in planned.states if is_inside(state, opened, first)]
            # One from the middle, the work well begun.
            chosen = [replace(state, id=later(first.state, state)) for state in inside[len(inside) // 2 :][:1]]
            found = recover(scenario, verifier, opened.path, opened.log, chosen, stopped)
            deeper += _save(kept, chosen, found, opened.log, len(chosen))
    kept.write_index([*firsts, *deeper])


def cuts(
    scenario: Scenario, profile: Profile, log: WriteLog, kept: Recoveries, stack: ExitStack
) -> tuple[list[tuple[OpenRecovery, list[Cut]]], PlanFacts]:
    """Return each recorded recovery of a cell, its log left open on the stack, and its cuts; deterministic.

    Raise RecordingError if a recovery is damaged, missing, or not of this recording.
    """
    index = kept.index()
    if index is None:
        raise RecordingError(f"the recoveries of {scenario.id} were not all recorded")
    logs, digests = {"": log}, {"": ContentIndex(log)}
    found: list[tuple[OpenRecovery, list[Cut]]] = []
    plans: list[Plan] = []
    inside_count = 0
    for recovery in index:
        parent, _, own = recovery.state.rpartition(SEPARATOR)
        if parent not in logs:
            raise RecordingError(f"the index of {scenario.id} lacks the recovery from {parent}")
        start = digests[parent].digest(_parsed(own, logs[parent]))
        opened = stack.enter_context(kept.opened(recovery.state))
        logs[recovery.state], digests[recovery.state] = opened.log, ContentIndex(opened.log)
        digest = digests[recovery.state].digest
        if digest(opened.start()) != start:
            raise RecordingError(f"the recovery from {recovery.state} starts on another content: not of this recording")
        entry = _parsed(recovery.state.split(SEPARATOR)[0], log).instant
        planned = _later_plan(scenario, profile, opened, recovery)
        # As it was found it is a state of the first cut only, and that has been recovered from.
        planned = replace(planned, states=tuple(state for state in planned.states if digest(state) != start))
        inside_count += sum(is_inside(state, opened, recovery) for state in planned.states)
        plans.append(planned)
        named = [replace(state, id=later(recovery.state, state)) for state in planned.states]
        found.append((opened, [Cut(scenario.id, state, digest(state), entry, 0) for state in named]))
    return found, _facts(_first_plan(scenario, profile, log), plans, inside_count)


def later(text: str, state: CrashState) -> str:
    """Return the id of a crash state of the recovery from another one."""
    return text + SEPARATOR + state.id


def is_inside(state: CrashState, opened: OpenRecovery, recovery: Recovery) -> bool:
    """Return whether a recovery had begun to write to the files of the database in a state, and had more to write."""
    writes, in_files = _writes(opened, recovery)
    has_landed = (writes < state.base_end) | np.isin(writes, state.pieces(opened.log)[:, 0])
    return bool((in_files & has_landed).any() and not has_landed.all())


def _writes(opened: OpenRecovery, recovery: Recovery) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Return the entries that a recovery wrote, and for each whether it touches a file of the database."""
    log = opened.log
    writes = np.flatnonzero(log.payload_bytes)
    writes = writes[writes > opened.first_entry]
    begins, ends = log.offset_bytes[writes], log.offset_bytes[writes] + log.payload_bytes[writes]
    in_files = np.zeros(len(writes), dtype=bool)
    for offset, length in recovery.files:
        in_files |= (begins < offset + length) & (ends > offset)
    return writes, in_files


def _save(
    kept: Recoveries, states: Sequence[CrashState], found: Sequence[Recovered | None], log: WriteLog, count: int
) -> list[Recovery]:
    """Keep up to so many recoveries, those that wrote to files and then those that wrote most; return them in order."""
    telling: list[tuple[int, Recovery]] = []
    others: list[tuple[int, Recovery]] = []
    for state, one in zip(states, found, strict=True):
        # What does not mount was not recovered, and is nothing that an engine could be blamed for.
        if one is None or one.finding.kind == FindingKind.FILESYSTEM_DAMAGE:
            continue
        kept.save(state.id, self_contained(state, log, one.log), one.digest)
        recovery = Recovery(state.id, one.files)
        with kept.opened(state.id) as opened:
            writes, in_files = _writes(opened, recovery)
        (telling if in_files.any() else others).append((len(writes), recovery))
    chosen = evenly_spaced([recovery for _, recovery in telling], count)
    others.sort(key=lambda row: -row[0])
    chosen = [*chosen, *(recovery for _, recovery in others[: count - len(chosen)])]
    for _, recovery in (*telling, *others):
        if recovery not in chosen:
            kept.remove(recovery.state)
    return chosen


def _first_plan(scenario: Scenario, profile: Profile, log: WriteLog) -> Plan:
    first_entry = Timeline(log.marks).setup.entry_index
    return plan(
        Fault(SPECS[scenario.fault].model), log, epochs(log),
        first_entry=first_entry, states_max=profile.states_max, seed=scenario.seed,
    )  # fmt: skip


def _later_plan(scenario: Scenario, profile: Profile, opened: OpenRecovery, recovery: Recovery) -> Plan:
    return plan(
        Fault(SPECS[scenario.fault].model), opened.log, epochs(opened.log),
        first_entry=opened.first_entry, states_max=states_max(profile, recovery), seed=scenario.seed,
    )  # fmt: skip


def _parsed(text: str, log: WriteLog) -> CrashState:
    try:
        return parse_state(text, log, epochs(log))
    except StateIdError as error:
        raise RecordingError(f"a recovery was recorded from {text}, which is no crash state: {error}") from None


def _facts(first: Plan, plans: Sequence[Plan], inside_count: int) -> PlanFacts:
    """Sum plans up. The epochs of the recording count as sampled: few of their states have their recovery cut."""
    return PlanFacts(
        state_count=sum(len(one.states) for one in plans),
        epoch_count=first.epoch_count + sum(one.epoch_count for one in plans),
        epochs_exhaustive=sum(one.epochs_exhaustive for one in plans),
        epochs_sampled=first.epoch_count + sum(one.epochs_sampled for one in plans),
        instant_count=0,
        recovery_count=len(plans),
        inside_count=inside_count,
    )
