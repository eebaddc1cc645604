"""Whether two honest disks under one host could hold exactly these contents; an independent checker of `twodisk`.

Each disk has its own write log and is checked against it as in `rig.faults.legality.legality`. The question left is
whether the two instants can be one moment. The host writes each mark to the log of the first disk, then to the log of
the second, and only then starts the next mark. So at every moment the first log has as many marks as the second, or one
more. Where block traces came with both logs, the machine's clock says more: the early disk's log has exactly the FUA
writes and FLUSHes that had completed by the time of the claim. Nothing else tells which positions of the two logs
coincided.

The claim: just before an entry of the late disk's log completes, both disks die, and the early one loses all that it
has not flushed. (A disk that died earlier, and on which nothing became durable in between, holds the same.) The claim
is legal if
- the late disk can hold its content at that instant, by the rule for whole writes, and
- the early disk holds exactly what is durable, at every position that its log can have by then. Which position it was
  is unknown, so the claim must hold for all. No unflushed write counts, because even the last write of the late disk
  does not tell whether it had been submitted.

The claim is illegal if the late disk's content is illegal, or if the early disk's content is illegal at all of these
positions. Otherwise it is undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rig.faults.legality.legality import Checker, Legality, Rule, Ruling
from rig.faults.log.arrays import ByteArray
from rig.faults.log.log import EntryFlag, WriteLog

# The kernel's own mark, written to each log when its target is removed.
_END_MARK = "dm-log-writes-end"
# Later than any time.
_NEVER_NS = 1 << 62


class JointChecker:
    """Judges contents of two disks; disk 0 is the one marked first."""

    def __init__(self, logs: Sequence[WriteLog], devices_bytes: Sequence[int], *, is_replay: bool = True) -> None:
        """Take both logs and the sizes of both disks; `is_replay` as for `Checker`, and it must hold for both logs."""
        self._logs = logs
        self._checkers = [
            Checker(log, size, is_replay=is_replay) for log, size in zip(logs, devices_bytes, strict=True)
        ]
        self._marks = [[mark.entry_index for mark in log.marks if mark.text != _END_MARK] for log in logs]

    def mark_count(self, disk: int, entry: int) -> int:
        """Return how many marks a log has just before an entry."""
        return sum(mark < entry for mark in self._marks[disk])

    def check(self, contents: Sequence[ByteArray], late: int, instant: int) -> Ruling:
        """Say whether both disks can hold these contents just before entry `instant` of the late disk's log."""
        of_late = self._checkers[late].check(contents[late], instant, Rule.WHOLE)
        if of_late.legality is Legality.ILLEGAL:
            return _with_disk(of_late, late)
        early = 1 - late
        answers = [
            self._checkers[early].check(contents[early], position, Rule.DURABLE)
            for position in self._positions(early, late, instant)
        ]
        wrong = [answer for answer in answers if answer.legality is not Legality.LEGAL]
        if wrong:
            is_never = all(answer.legality is Legality.ILLEGAL for answer in answers)
            return _with_disk(replace(wrong[0], legality=Legality.ILLEGAL if is_never else Legality.UNDECIDED), early)
        return _with_disk(of_late, late)

    def _positions(self, disk: int, other: int, instant: int) -> Iterator[int]:
        """Yield the positions of a log just before an entry of the other's, the first of equivalent ones."""
        ours, theirs = self._completions(disk, 0), self._completions(other, instant)
        if ours is None or theirs is None:
            yield from self._between_marks(disk, self.mark_count(other, instant))
            return
        # If two requests completed in the same nanosecond, either may have been the first.
        moment_ns = min((time_ns for _, time_ns in theirs), default=_NEVER_NS)
        before = [entry for entry, time_ns in ours if time_ns < moment_ns]
        together = [entry for entry, time_ns in ours if time_ns == moment_ns]
        yield before[-1] + 1 if before else 0
        yield from (entry + 1 for entry in together)

    def _completions(self, disk: int, begin: int) -> list[tuple[int, int]] | None:
        """Return the FUA writes and FLUSHes of a log from an entry on, with their times; None if there is no trace."""
        log = self._logs[disk]
        if log.account is None or log.account.times_ns is None:
            return None
        entries = begin + np.flatnonzero(log.flags[begin:] & (EntryFlag.FUA | EntryFlag.FLUSH))
        return list(zip(entries.tolist(), log.account.times_ns[entries, 1].tolist(), strict=True))

    def _between_marks(self, disk: int, others_marks: int) -> Iterator[int]:
        """Yield the positions of a log at which the other can have this many marks, the first of equivalent ones."""
        fewest, most = (others_marks, others_marks + 1) if disk == 0 else (others_marks - 1, others_marks)
        marks, log = self._marks[disk], self._logs[disk]
        first = marks[fewest - 1] + 1 if fewest > 0 else 0
        last = marks[most] if most < len(marks) else log.entry_count
        yield first
        # Only a FUA write or a FLUSH changes what is durable, so the positions after each of them are enough.
        changes = (log.flags[first:last] & (EntryFlag.FUA | EntryFlag.FLUSH)) > 0
        yield from (first + 1 + np.flatnonzero(changes)).tolist()


def _with_disk(answer: Ruling, disk: int) -> Ruling:
    """Return the answer with the disk in its reason."""
    return replace(answer, reason=f"on the disk marked {('first', 'second')[disk]}: {answer.reason}")
