"""Two write logs of one run, with common marks, and what these prove about the order of their entries.

The program under test writes each mark to both logs, first to the log of disk `a`, then to the log of `b`, and only
then the next mark. So the marks of both logs form one sequence. An entry lies between two marks of its own log. Given
an entry of each log, the first is proven to have completed earlier if the mark after it in its own log is not later in
that sequence than the mark before the second in the other log.

If both logs have an account of submissions (`rig.faults.log.submissions`), the machine's clock tells when each entry
completed. This orders all entries of both logs except entries of the same nanosecond. Marks cannot order the two copies
of one write: the copies are sent to their disks together, and no mark lies between their completions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

import numpy as np

from rig.faults.log.account import NEVER
from rig.faults.log.epochs import epochs
from rig.faults.log.extents import Extent, base_extents
from rig.faults.log.log import EntryFlag, LogError, WriteLog
from rig.faults.states.state import CrashState, everything_unflushed_lost, is_told

# The kernel's own mark, written to each log when its target is removed.
_END_MARK = "dm-log-writes-end"
_NEVER = 1 << 62


class DiskLetter(StrEnum):
    """One of the two; the value is the spelling in ids."""

    A = "a"
    B = "b"

    @property
    def other(self) -> DiskLetter:
        """Return the other disk."""
        return DiskLetter.B if self is DiskLetter.A else DiskLetter.A


@dataclass(frozen=True)
class Span:
    """Where a moment lies in the order of all marks: after mark `after`, before mark `before`."""

    after: int
    before: int


class Side:
    """One log of the two."""

    def __init__(self, log: WriteLog, rank: int) -> None:
        self.log = log
        self.epochs = epochs(log)
        marks = [mark for mark in log.marks if mark.text != _END_MARK]
        self.texts = [mark.text for mark in marks]
        self.marks = [mark.entry_index for mark in marks]
        self._rank = rank
        # The entries that change what is durable: FUA writes, and FLUSHes that took a write.
        self.durable = sorted(
            entry for epoch in self.epochs
            for entry in (*epoch.fuas, *([epoch.flush] if epoch.flush is not None and epoch.batch else []))
        )  # fmt: skip
        self.spans = [self.span(entry) for entry in self.durable]
        # When each entry was submitted and completed; None if the log does not tell.
        self._times_ns = log.account.times_ns if log.account else None
        self.durable_ns = None if self._times_ns is None else self._times_ns[self.durable, 1].tolist()
        flushes = [epoch.end for epoch in self.epochs[:-1]]
        # Base 0 is the empty disk, base n what is durable when the epoch of mark n - 1 starts.
        self.bases = [0, *(self.epochs[bisect_left(flushes, mark)].begin for mark in self.marks)]

    def span(self, entry: int) -> Span:
        """Return where the moment lies just before an entry completes; its completion lies there too."""
        count = bisect_left(self.marks, entry)
        after = 2 * (count - 1) + self._rank if count else -1
        return Span(after, 2 * count + self._rank if count < len(self.marks) else _NEVER)

    def completion_ns(self, entry: int) -> int:
        """Return when the first FUA write or FLUSH from this entry on completed."""
        assert self._times_ns is not None
        at_once = np.flatnonzero(self.log.flags[entry:] & (EntryFlag.FUA | EntryFlag.FLUSH))
        return int(self._times_ns[entry + int(at_once[0]), 1]) if len(at_once) else _NEVER

    def latest_ns(self, state: CrashState) -> tuple[int, int]:
        """Return the last submission and the last completion among the writes that a state holds; -1 for none."""
        assert self._times_ns is not None
        held = np.concatenate([self._times_ns[: state.base_end], self._times_ns[state.pieces(self.log)[:, 0]]])
        submitted_ns, completed_ns = held.max(axis=0, initial=NEVER).tolist()
        return submitted_ns, completed_ns

    def durable_count(self, moment: Span) -> int | None:
        """Return how many entries had changed what is durable at a moment of the other log; None if not proven."""
        surely = bisect_right([span.before for span in self.spans], moment.after)
        at_most = bisect_left([span.after for span in self.spans], moment.before)
        return surely if surely == at_most else None


class TwoLogs:
    """Both logs; raise `LogError` if their marks are not the same.

    Both are in one file, from which extents are copied. On the device of the extents disk `a` begins at 0 and disk `b`
    at `b_device_bytes`.
    """

    def __init__(self, a: WriteLog, b: WriteLog, *, b_device_bytes: int = 0) -> None:
        self.sides = {DiskLetter.A: Side(a, 0), DiskLetter.B: Side(b, 1)}
        self._begins = {DiskLetter.A: (0, a.begin_bytes), DiskLetter.B: (b_device_bytes, b.begin_bytes)}
        self._has_times = all(side.durable_ns is not None for side in self.sides.values())
        ours, theirs = self.sides[DiskLetter.B].texts, self.sides[DiskLetter.A].texts
        if ours != theirs:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
            raise LogError(
                b.path,
                None,
                0,
                f"{len(ours)} marks, but {len(theirs)} in the log of the other disk; the first {same} are the same",
            )

    def pin(self, late: DiskLetter, state: CrashState) -> CrashState | None:
        """Return what is left of the early disk at the instant of a state of the late one; None if not proven."""
        count = self._durable_count(late, state)
        if count is None:
            return None
        early = self.sides[late.other]
        entry = early.durable[count - 1] + 1 if count else 0
        pinned = everything_unflushed_lost(early.log, early.epochs, entry)
        return pinned if is_told(early.log, pinned) else None

    def is_ordered(self, late: DiskLetter, state: CrashState) -> bool:
        """Whether it is known what had become durable on the early disk by the instant of a state of the late one."""
        return self._durable_count(late, state) is not None

    def _durable_count(self, late: DiskLetter, state: CrashState) -> int | None:
        early = self.sides[late.other]
        if not self._has_times or early.durable_ns is None:
            return early.durable_count(self.sides[late].span(state.instant))
        moment_ns = self.sides[late].completion_ns(state.instant)
        count = bisect_left(early.durable_ns, moment_ns)
        return count if count == bisect_right(early.durable_ns, moment_ns) else None

    def is_apart(self, late: DiskLetter, of_late: CrashState, of_early: CrashState) -> bool:
        """Whether the late disk surely holds something that came after all that the early one holds.

        By the marks, it became durable later. By the clock, it was submitted after all that the early disk holds had
        completed. So of two copies that are written together, neither counts as the later one.
        """
        x, y = self.sides[late], self.sides[late.other]
        if self._has_times:
            return x.latest_ns(of_late)[0] > y.latest_ns(of_early)[1]
        own, others = bisect_left(x.durable, of_late.instant), bisect_left(y.durable, of_early.instant)
        return own > 0 and (others == 0 or x.spans[own - 1].after >= y.spans[others - 1].before)

    def mark_number(self, entry: int) -> int:
        """Return the number, from 0, of the mark at this entry of log `a`."""
        return self.sides[DiskLetter.A].marks.index(entry)

    def marks_seen(self, disk: DiskLetter, state: CrashState) -> int:
        """Return how many marks lie before the instant of a state of a disk."""
        return bisect_left(self.sides[disk].marks, state.instant)

    def entry_after(self, mark_count: int) -> int:
        """Return the entry of log `a` just after its first `mark_count` marks."""
        return self.sides[DiskLetter.A].marks[mark_count - 1] + 1 if mark_count else 0

    def base(self, states: Mapping[DiskLetter, CrashState]) -> int:
        """Return the number of the furthest base that both states contain; see `Side.bases`."""
        return min(bisect_right(self.sides[disk].bases, state.base_end) for disk, state in states.items()) - 1

    def advance(self, from_base: int, to_base: int) -> list[Extent]:
        """Return what moves both disks from one base to another."""
        return [
            extent
            for disk, side in self.sides.items()
            for extent in self._place(disk, base_extents(side.log, side.bases[from_base], side.bases[to_base]))
        ]

    def extents(self, base: int, states: Mapping[DiskLetter, CrashState]) -> list[Extent]:
        """Return what to put on a base to give these states, in order."""
        extents: list[Extent] = []
        for disk, side in self.sides.items():
            own = base_extents(side.log, side.bases[base], states[disk].base_end)
            extents += self._place(disk, own + states[disk].extents(side.log))
        return extents

    def read(self, states: Mapping[DiskLetter, CrashState], offset_bytes: int, length_bytes: int) -> bytes:
        """Return a range of the device of the extents; it lies on one disk."""
        disk = max((disk for disk in DiskLetter if self.begin_bytes(disk) <= offset_bytes), key=self.begin_bytes)
        return states[disk].read(self.sides[disk].log, offset_bytes - self.begin_bytes(disk), length_bytes)

    def begin_bytes(self, disk: DiskLetter) -> int:
        """Return where a disk begins on the device of the extents."""
        return self._begins[disk][0]

    def _place(self, disk: DiskLetter, extents: Sequence[Extent]) -> list[Extent]:
        device, source = self._begins[disk]
        return [
            replace(
                extent,
                device_offset_bytes=extent.device_offset_bytes + device,
                source_offset_bytes=extent.source_offset_bytes + source,
            )
            for extent in extents
        ]
