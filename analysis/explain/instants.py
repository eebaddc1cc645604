"""Instants of a recording in words: the transaction, the phase of its commit, the time since an acknowledgement."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace

from rig.faults import CrashState, JointState, Logs, WriteLog
from rig.recordings.timeline import Timeline

_NS_PER_S, _NS_PER_MS, _NS_PER_US = 1e9, 1e6, 1e3


@dataclass(frozen=True)
class CutInstant:
    """The power goes just before a log entry completes. Times are virtual, in nanoseconds of the machine's clock."""

    entry: int
    time_ns: int
    # What the workload was doing, as the end of a sentence.
    phase: str


def instant_of(entry: int, log: WriteLog, timeline: Timeline) -> CutInstant:
    """Return the instant just before an entry completes."""
    return CutInstant(entry, time_of(entry, log, timeline), phase_of(entry, timeline))


def instant_of_state(state: CrashState, logs: Logs, timeline: Timeline) -> CutInstant:
    """Return the latest instant that leaves a state; with two disks, the disk that died later has the time."""
    instant = instant_of(state.latest_instant, logs.first, timeline)
    if isinstance(state, JointState):
        side = state.logs.sides[state.late]
        instant = replace(instant, time_ns=time_of(state.states[state.late].latest_instant, side.log, timeline))
    return instant


def time_of(entry: int, log: WriteLog, timeline: Timeline) -> int:
    """Return when an entry completed; for a mark when it was written, for the end of the log the last known time."""
    if entry < log.entry_count and log.account is not None and log.account.times_ns is not None:
        completed_ns = int(log.account.times_ns[entry, 1])
        if completed_ns >= 0:
            return completed_ns
    # A mark is at its own time; anything else without a time of its own is after the last mark before it.
    before = bisect.bisect_right([moment.entry_index for moment in timeline.moments], entry)
    return timeline.moments[max(before - 1, 0)].time_ns


def phase_of(entry: int, timeline: Timeline) -> str:
    """Return what the workload was doing just before an entry completed."""
    begun = [(begin, ack) for begin, ack in timeline.turns if begin.entry_index < entry]
    if not begun:
        return "before the first transaction"
    begin, ack = begun[-1]
    if entry <= ack.entry_index:
        return f"during the commit of transaction {begin.number}"
    if entry > timeline.end.entry_index:
        return "after the workload had ended"
    return f"after transaction {ack.number} was acknowledged and before the next began"


def span_text(span_ns: float) -> str:
    """Return a length of time with a unit that suits it."""
    if abs(span_ns) >= _NS_PER_S:
        return f"{span_ns / _NS_PER_S:.3f} s"
    if abs(span_ns) >= _NS_PER_MS:
        return f"{span_ns / _NS_PER_MS:.1f} ms"
    return f"{span_ns / _NS_PER_US:.0f} us"
