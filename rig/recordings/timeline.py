"""When things happened in a recording: the marks of the write log, read as acknowledgements and times.

A mark is a sound lower bound: its writer had seen every earlier flush and FUA complete. So a transaction counts as
acknowledged at a cut just before log entry `e` if its ack mark has an index below `e`.
A mark `recovered-P` says that a restarted database has shown transactions 1 to P. They count as acknowledged from there
on. In a later life this mark stands for the setup.
A transaction that raised an error has a `fail` mark instead. It may still be in the database, so the program looks, and
goes on with the same number or with the next. So acks may skip numbers, and each ack covers all lower numbers.
If a user's program returns an error, the mark is `error`. Nobody looks: such a transaction may be there or not, unless
it is carried out again and acknowledged. The ack of a user's program may name the step, as in `ack-17.compaction`.
Where several connections commit, a transaction may begin before the last one is acknowledged, and be acknowledged
before it. The engine has committed them in the order of their numbers.
The mark `clients-C` says that a user's program has C clients, whose transactions overlap in any order. Then each ack
speaks for one transaction, and client c has the numbers c, c + C, and so on, one after the other.
Times are virtual nanoseconds of the guest.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rig.contract.errors import RecordingError
from rig.faults import Mark

_OURS = re.compile(
    r"(?:(?P<kind>setup|end|tick)|(?P<of>recovered|begin|ack|fail|error|inject|heal|drop|event|done|clients)-"
    r"(?P<number>[0-9]+)(?:\.(?P<name>[\w-]+))?)-(?P<time>[0-9]+)"
)


@dataclass(frozen=True)
class Moment:
    """One timed mark; `number` identifies its transaction or event, 0 for a mark without one."""

    kind: str
    number: int
    time_ns: int
    entry_index: int
    # The name of a step, if a user's program gave it one.
    name: str = ""


class Timeline:
    """The moments of one recording, from the setup on."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        moments = [moment for mark in marks if (moment := _moment(mark))]
        # Its number is how many transactions were there before.
        openings = {moment.kind for moment in moments} & {"setup", "recovered"}
        self.setup = _only(moments, "recovered" if openings == {"recovered"} else "setup")
        self.end = _only(moments, "end")
        self.is_later = self.setup.kind == "recovered"
        self.moments = [moment for moment in moments if moment.entry_index >= self.setup.entry_index]
        self.begins = [moment for moment in self.moments if moment.kind == "begin"]
        self.acks = [moment for moment in self.moments if moment.kind == "ack"]
        # The transactions that returned an error to a user's program and were never acknowledged.
        acked = {moment.number for moment in self.acks}
        self.failed = tuple(sorted({moment.number for moment in self.moments if moment.kind == "error"} - acked))
        # The moments at which a sync was left out.
        self.drops = [moment for moment in self.moments if moment.kind == "drop"]
        self.client_count = next((moment.number for moment in self.moments if moment.kind == "clients"), 1)
        self._turns = list(_turns(self.moments, self.setup.number + 1, self.client_count))
        if self.moments[:1] != [self.setup] or self.moments[-1:] != [self.end]:
            raise RecordingError("the marks do not lead from setup to end; the recording is void")
        acknowledged = [self.setup, *self.acks]
        self._said_entries = [moment.entry_index for moment in acknowledged]
        self._said_numbers = self._counts(acknowledged)
        self._known = [
            self.setup, *(moment for moment in self.moments[1:] if moment.kind in ("ack", "recovered"))
        ]  # fmt: skip
        self._known_entries = [moment.entry_index for moment in self._known]
        self._known_numbers = self._counts(self._known)
        self._begin_entries = [moment.entry_index for moment in self.begins]
        self._entries = [moment.entry_index for moment in self.moments]
        self._times_ns = [moment.time_ns for moment in self.moments]
        if self._times_ns != sorted(self._times_ns):
            raise RecordingError("time runs backwards between two marks; the recording is void")

    def acked_count(self, entry: int) -> int:
        """Return how many transactions were acknowledged at a cut just before an entry."""
        before = bisect.bisect_left(self._known_entries, entry)
        return self._known_numbers[before - 1] if before else 0

    def said_count(self, entry: int) -> int:
        """Return the same without what the database has only shown after a restart."""
        before = bisect.bisect_left(self._said_entries, entry)
        return self._said_numbers[before - 1] if before else 0

    def issued_count(self, entry: int) -> int:
        """Return how many transactions had begun at a cut just before an entry."""
        before = bisect.bisect_left(self._begin_entries, entry)
        if self.client_count > 1:
            return before
        return max((moment.number for moment in self.begins[:before]), default=self.setup.number)

    def acked_numbers(self, entry: int) -> set[int]:
        """Return which transactions of several clients were acknowledged at a cut just before an entry."""
        return {moment.number for moment in self.acks if moment.entry_index < entry}

    def issued_numbers(self, entry: int) -> set[int]:
        """Return which transactions of several clients had begun at a cut just before an entry."""
        return {moment.number for moment in self.begins if moment.entry_index < entry}

    def span(self, ending: str, number: int) -> tuple[int, int]:
        """Return the entries of the marks that begin and end a transaction (`ack`) or an event (`done`)."""
        kinds = ({"ack": "begin", "done": "event"}[ending], ending)
        entries = [moment.entry_index for moment in self.moments if moment.kind in kinds and moment.number == number]
        return entries[0], entries[-1]

    def step_spans(self, name: str) -> list[tuple[Moment, Moment]]:
        """Return where a cut hits the steps of a name: from the begin of each to the end of the transaction after it.

        What a step has not made durable is lost only after it, while the next transaction is in flight.
        """
        return [(begin, beyond) for begin, ack, beyond in self._steps if ack.name == name]

    @property
    def steps(self) -> list[tuple[str, int, int]]:
        """Return each step that has a name, with the log entries between which a cut hits it."""
        return [(ack.name, begin.entry_index, beyond.entry_index) for begin, ack, beyond in self._steps]

    @property
    def _steps(self) -> list[tuple[Moment, Moment, Moment]]:
        """Return of each step that has a name its begin, its ack, and where cuts hit it no more."""
        after = [*(ending for _, ending in self._turns[1:]), self.end]
        return [(begin, ack, beyond) for (begin, ack), beyond in zip(self._turns, after, strict=False) if ack.name]

    def lost_ns(self, recovered: int, entry: int) -> int:
        """Return the time from the first lost transaction's ack to the last mark before the cut; 0 if none is lost."""
        if recovered >= self.acked_count(entry):
            return 0
        return self._ns_since(next(moment for moment in self._known if moment.number > recovered), entry)

    def lost_ns_of(self, numbers: Collection[int], entry: int) -> int:
        """Return the same for lost transactions of several clients."""
        return self._ns_since(next(moment for moment in self.acks if moment.number in numbers), entry)

    def _ns_since(self, moment: Moment, entry: int) -> int:
        return self.moments[bisect.bisect_left(self._entries, entry) - 1].time_ns - moment.time_ns

    def _counts(self, acknowledged: Sequence[Moment]) -> list[int]:
        """Return how many transactions are acknowledged after each of these moments; the first is the setup."""
        if self.client_count > 1:
            return list(range(len(acknowledged)))
        return list(accumulate((moment.number for moment in acknowledged), max))

    def entry_at(self, time_ns: float) -> int:
        """Return the entry just after a cut at this time, with the entries between two marks evenly spaced in time."""
        after = bisect.bisect_right(self._times_ns, time_ns)
        if after == 0 or after == len(self.moments):
            raise ValueError(f"{time_ns} ns lies outside the workload")
        before, following = self.moments[after - 1], self.moments[after]
        share = (time_ns - before.time_ns) / (following.time_ns - before.time_ns)
        return before.entry_index + 1 + int(share * (following.entry_index - before.entry_index - 1))

    @property
    def first_ack_entry(self) -> int:
        """Return the entry of the first acknowledgement; 0 if nothing was acknowledged."""
        return self.acks[0].entry_index if self.acks else 0

    @property
    def busy_ns(self) -> int:
        """Return the time during which transactions that were acknowledged were under way."""
        return sum(last.time_ns - first.time_ns for first, last in self.busy_spans)

    @property
    def busy_spans(self) -> list[tuple[Moment, Moment]]:
        """Return when such transactions were under way: the first begin and the last ack of those that overlap."""
        spans: list[tuple[Moment, Moment]] = []
        for begin, ack in sorted(self.turns, key=lambda turn: turn[0].entry_index):
            if spans and begin.entry_index < spans[-1][1].entry_index:
                first, last = spans.pop()
                spans.append((first, max(last, ack, key=lambda moment: moment.entry_index)))
            else:
                spans.append((begin, ack))
        return spans

    @property
    def turns(self) -> list[tuple[Moment, Moment]]:
        """Return the begin and the ack of every acknowledged transaction."""
        return [(begin, end) for begin, end in self._turns if end.kind == "ack"]


def last_number(marks: Sequence[Mark], kind: str) -> int | None:
    """Return the number of the last mark of a kind, such as `ack`; None without one. Other marks may be missing."""
    numbers = [match["number"] for mark in marks if (match := _OURS.fullmatch(mark.text)) and match["of"] == kind]
    return int(numbers[-1]) if numbers else None


def _moment(mark: Mark) -> Moment | None:
    if mark.text == "dm-log-writes-end":
        return None
    match = _OURS.fullmatch(mark.text)
    if match is None:
        raise RecordingError(f"entry {mark.entry_index}: the mark {mark.text!r} is unknown")
    kind, number = match["kind"] or match["of"], int(match["number"] or 0)
    return Moment(kind, number, int(match["time"]), mark.entry_index, match["name"] or "")


def _turns(moments: Sequence[Moment], first: int, client_count: int) -> Iterator[tuple[Moment, Moment]]:
    """Yield the begin and the ack or fail of each attempt at a transaction; raise RecordingError if out of order."""
    due, begun, acked = set(range(first, first + client_count)), dict[int, Moment](), first - 1
    for moment in moments:
        if moment.kind == "begin" and moment.number in due:
            begun[moment.number] = moment
            due = due - {moment.number} if client_count > 1 else {moment.number + 1}
        elif moment.kind in ("ack", "fail", "error") and moment.number in begun:
            yield begun.pop(moment.number), moment
            acked = moment.number if moment.kind == "ack" else acked
            due |= {moment.number + client_count} if client_count > 1 else set()
            due |= {moment.number} if moment.kind == "fail" else set()
            # A program that is started again goes on after the last transaction that it has.
            due |= set(range(acked + 1, moment.number + 1)) if moment.kind == "error" else set()
        elif moment.kind in ("begin", "ack", "fail", "error"):
            raise RecordingError(f"the mark {moment.kind}-{moment.number} is out of turn; the recording is void")
    for number in begun:
        raise RecordingError(f"transaction {number} began but did not end; the recording is void")


def _only(moments: Sequence[Moment], kind: str) -> Moment:
    matching = [moment for moment in moments if moment.kind == kind]
    if len(matching) != 1:
        raise RecordingError(f"{len(matching)} marks {kind!r} instead of one; the recording is void")
    return matching[0]
