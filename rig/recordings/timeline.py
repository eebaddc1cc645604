"""When things happened in a recording: the marks of the write log, read as acknowledgements and times.

A mark is a sound lower bound: its writer had seen every earlier flush and FUA complete. So a transaction counts as
acknowledged at a cut just before log entry `e` if its ack mark has an index below `e`.
A transaction that raised an error has a `fail` mark instead. It may still be in the database, so the program looks, and
goes on with the same number or with the next. So acks may skip numbers, and each ack covers all lower numbers.
Times are virtual nanoseconds of the guest.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rig.contract.errors import RecordingError

_OURS = re.compile(
    r"(?:(?P<kind>setup|end|tick)|(?P<of>begin|ack|fail|inject|heal|drop|event|done)-(?P<number>[0-9]+))-(?P<time>[0-9]+)"
)


class _Mark(Protocol):
    @property
    def entry_index(self) -> int: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Moment:
    """One timed mark; `number` identifies its transaction or event, 0 for a mark without one."""

    kind: str
    number: int
    time_ns: int
    entry_index: int


class Timeline:
    """The moments of one recording, from the setup on."""

    def __init__(self, marks: Sequence[_Mark]) -> None:
        moments = [moment for mark in marks if (moment := _moment(mark))]
        self.setup = _only(moments, "setup")
        self.end = _only(moments, "end")
        self.moments = [moment for moment in moments if moment.entry_index >= self.setup.entry_index]
        self.begins = [moment for moment in self.moments if moment.kind == "begin"]
        self.acks = [moment for moment in self.moments if moment.kind == "ack"]
        # The moments at which a sync was left out.
        self.drops = [moment for moment in self.moments if moment.kind == "drop"]
        self._turns = list(_turns(self.moments))
        if self.moments[:1] != [self.setup] or self.moments[-1:] != [self.end]:
            raise RecordingError("the marks do not lead from setup to end; the recording is void")
        self._ack_entries = [moment.entry_index for moment in self.acks]
        self._begin_entries = [moment.entry_index for moment in self.begins]
        self._entries = [moment.entry_index for moment in self.moments]
        self._times_ns = [moment.time_ns for moment in self.moments]
        if self._times_ns != sorted(self._times_ns):
            raise RecordingError("time runs backwards between two marks; the recording is void")

    def acked(self, entry: int) -> int:
        """Return how many transactions were acknowledged at a cut just before an entry."""
        before = bisect.bisect_left(self._ack_entries, entry)
        return self.acks[before - 1].number if before else 0

    def issued(self, entry: int) -> int:
        """Return how many transactions had begun at a cut just before an entry."""
        before = bisect.bisect_left(self._begin_entries, entry)
        return max((moment.number for moment in self.begins[:before]), default=0)

    def span(self, ending: str, number: int) -> tuple[int, int]:
        """Return the entries of the marks that begin and end a transaction (`ack`) or an event (`done`)."""
        kinds = ({"ack": "begin", "done": "event"}[ending], ending)
        found = [moment.entry_index for moment in self.moments if moment.kind in kinds and moment.number == number]
        return found[0], found[-1]

    def lost_ns(self, recovered: int, entry: int) -> int:
        """Return the time from the first lost transaction's ack to the last mark before the cut; 0 if none is lost."""
        if recovered >= self.acked(entry):
            return 0
        last = self.moments[bisect.bisect_left(self._entries, entry) - 1]
        return last.time_ns - next(ack for ack in self.acks if ack.number > recovered).time_ns

    def entry_at(self, time_ns: float) -> int:
        """Return the entry just after a cut at this time, with the entries between two marks evenly spaced in time."""
        after = bisect.bisect_right(self._times_ns, time_ns)
        if after == 0 or after == len(self.moments):
            raise ValueError(f"{time_ns} ns lies outside the workload")
        before, following = self.moments[after - 1], self.moments[after]
        share = (time_ns - before.time_ns) / (following.time_ns - before.time_ns)
        return before.entry_index + 1 + int(share * (following.entry_index - before.entry_index - 1))

    @property
    def busy_ns(self) -> int:
        """Return the time spent inside transactions that were acknowledged."""
        return sum(ack.time_ns - begin.time_ns for begin, ack in self.turns)

    @property
    def turns(self) -> list[tuple[Moment, Moment]]:
        """Return the begin and the ack of every acknowledged transaction."""
        return [(begin, end) for begin, end in self._turns if end.kind == "ack"]


def _moment(mark: _Mark) -> Moment | None:
    if mark.text == "dm-log-writes-end":
        return None
    found = _OURS.fullmatch(mark.text)
    if found is None:
        raise RecordingError(f"entry {mark.entry_index}: the mark {mark.text!r} is unknown")
    return Moment(found["kind"] or found["of"], int(found["number"] or 0), int(found["time"]), mark.entry_index)


def _turns(moments: Sequence[Moment]) -> Iterator[tuple[Moment, Moment]]:
    """Yield the begin and the ack or fail of each attempt at a transaction; raise RecordingError if out of order."""
    due, begin = {1}, None
    for moment in moments:
        if moment.kind == "begin" and begin is None and moment.number in due:
            begin = moment
        elif moment.kind in ("ack", "fail") and begin and begin.number == moment.number:
            yield begin, moment
            due, begin = {moment.number + 1} | ({moment.number} if moment.kind == "fail" else set()), None
        elif moment.kind in ("begin", "ack", "fail"):
            raise RecordingError(f"the mark {moment.kind}-{moment.number} is out of turn; the recording is void")
    if begin:
        raise RecordingError(f"transaction {begin.number} began but did not end; the recording is void")


def _only(moments: Sequence[Moment], kind: str) -> Moment:
    found = [moment for moment in moments if moment.kind == kind]
    if len(found) != 1:
        raise RecordingError(f"{len(found)} marks {kind!r} instead of one; the recording is void")
    return found[0]
