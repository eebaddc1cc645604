"""A brute-force model of two disks with volatile caches under one host that marks both logs.

The host acts on either disk in any order. A mark is written to disk `a` and then to disk `b`, and other threads may act
in between. A cut may leave any content of one disk with any content of the other at the same moment. The order of the
entries of two logs is found by trying every way in which they may interleave.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from rig.faults import CrashState, DiskLetter, JointState, TwoLogs, WriteLog, epochs
from rig.faults.states.state import everything_unflushed_lost, landable, make_state
from tests.unit.faults import disks
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Content, Moment, Op, apply, emit

PAGE = 4096
Step = tuple[str, Op]


@dataclass
class TwoDisks:
    """Both disks, and every pair of simultaneous moments."""

    disks: dict[DiskLetter, disks.Disk] = field(default_factory=lambda: {disk: disks.Disk() for disk in DiskLetter})
    moments: list[tuple[Moment, Moment]] = field(default_factory=list)

    def run(self, steps: list[Step]) -> None:
        for one in self.disks.values():
            one._remember()
        self._join(DiskLetter.A, 0)
        mark_count = 0
        for name, op in steps:
            if op.kind == "mark":
                disk = list(DiskLetter)[mark_count % 2]
                mark_count += 1
            else:
                disk = DiskLetter(name)
            self._do(disk, op)
        if mark_count % 2:
            self._do(DiskLetter.B, Op("mark"))
        for disk in DiskLetter:
            self._do(disk, Op("flush-end"))
            self.disks[disk].log += self.disks[disk].unlogged

    def reachable(self) -> dict[tuple[Content, Content], int]:
        """Return every pair of contents that a cut can leave, with the most marks that disk `a` had seen by then."""
        found: dict[tuple[Content, Content], int] = {}
        for a, b in self.moments:
            for pair in ((one, other) for one in a.whole_contents() for other in b.whole_contents()):
                found[pair] = max(found.get(pair, 0), a.marks_seen)
        return found

    def _do(self, disk: DiskLetter, op: Op) -> None:
        before = len(self.disks[disk].moments)
        self.disks[disk]._step(op)
        self.disks[disk]._remember()
        self._join(disk, before)

    def _join(self, disk: DiskLetter, before: int) -> None:
        other = self.disks[disk.other].moments[-1]
        for moment in self.disks[disk].moments[before:]:
            self.moments.append((moment, other) if disk is DiskLetter.A else (other, moment))


@st.composite
def some_steps(draw: st.DrawFn, *, sectors: int = 4, fua_from: int = 0, count_max: int = 26) -> list[Step]:
    """Draw a run of two disks; FUA writes start at sector `fua_from`, others end before it unless it is 0."""
    steps: list[Step] = []
    pending = dict.fromkeys("ab", 0)
    for _ in range(draw(st.integers(0, count_max))):
        name = draw(st.sampled_from("ab"))
        kinds = ["write"] * 2 * (pending[name] < 3) + ["fua", "mark", "mark", "mark", "flush-begin", "flush-end"]
        kind = draw(st.sampled_from(kinds))
        op = Op(kind)
        if kind in {"write", "fua"}:
            low, high = (fua_from, sectors) if kind == "fua" else (0, fua_from or sectors)
            first = draw(st.integers(low, high - 1))
            op = Op(kind, first, draw(st.integers(1, min(2, high - first))), draw(st.sampled_from([0, 1, 2, 3])))
        pending[name] = 0 if kind == "flush-begin" else pending[name] + (kind == "write")
        steps.append((name, op))
    return steps


@contextmanager
def logs_of(path: Path, run: TwoDisks, b_device_bytes: int = DISK_SECTORS * SECTOR) -> Iterator[TwoLogs]:
    """Write both logs into one file, the log of `b` after the log of `a`, and open them."""
    parts = []
    for disk in DiskLetter:
        emit(path, run.disks[disk].log, 1)
        parts.append(path.read_bytes())
    begin = -(-len(parts[0]) // PAGE) * PAGE
    path.write_bytes(parts[0].ljust(begin, b"\0") + parts[1])
    with ExitStack() as stack:
        a = stack.enter_context(WriteLog.open(path))
        b = stack.enter_context(WriteLog.open(path, begin_bytes=begin))
        yield TwoLogs(a, b, b_device_bytes=b_device_bytes)


class Builder:
    """Builds joint states as a verifier does: one base for both disks, which only moves forward."""

    def __init__(self, path: Path) -> None:
        self._file = path.read_bytes()
        self._base = np.zeros(2 * DISK_SECTORS * SECTOR, dtype=np.uint8)
        self._base_end = 0

    def build(self, state: JointState) -> tuple[Content, Content]:
        log = state.logs.sides[DiskLetter.A].log
        assert state.base_end >= self._base_end
        apply(self._base, self._file, state.advance(log, self._base_end))
        self._base_end = state.base_end
        device = self._base.copy()
        apply(device, self._file, state.extents(log))
        half = DISK_SECTORS * SECTOR
        return disks.content_of(device[:half]), disks.content_of(device[half:])


def marks_claimed(state: JointState) -> int:
    side = state.logs.sides[DiskLetter.A]
    return sum(mark < state.instant for mark in side.marks)


def claims(logs: TwoLogs) -> Iterator[tuple[DiskLetter, CrashState, CrashState]]:
    """Yield the states of one disk with the other's state, if every way to interleave gives the same one."""
    together = positions(logs)
    for late in DiskLetter:
        side, other = logs.sides[late], logs.sides[late.other]
        changed = changes(other.log)
        for epoch in epochs(side.log):
            if epoch.doubtful:
                continue
            members = landable(epoch)
            subsets = [chosen for count in range(len(members) + 1) for chosen in combinations(members, count)]
            found = [make_state(epoch, len(epoch.fuas), whole=chosen) for chosen in subsets]
            found += [make_state(epoch, count) for count in range(len(epoch.fuas))]
            for state in found:
                here = list(DiskLetter).index(late)
                by_then = {place[1 - here] for place in together if place[here] == state.instant}
                if len({changed[entry] for entry in by_then}) == 1:
                    pinned = everything_unflushed_lost(other.log, other.epochs, min(by_then))
                    if not pinned.epoch.doubtful:
                        yield late, state, pinned


def changes(log: WriteLog) -> list[int]:
    """How many entries of a log before each one, and in all, changed what is durable."""
    found, waiting = [0], 0
    for flags in log.flags.tolist():
        is_change = bool(flags & 2 and not flags & 1) or bool(flags & 1 and waiting)
        waiting = 0 if flags & 1 else waiting + (not flags)
        found.append(found[-1] + is_change)
    return found


def positions(logs: TwoLogs) -> set[tuple[int, int]]:
    """The positions that the two logs may have at one time, over all ways to interleave."""
    marks = {disk: logs.sides[disk].marks for disk in DiskLetter}
    ends = {disk: logs.sides[disk].log.entry_count for disk in DiskLetter}
    seen, left = set[tuple[int, int]](), [(0, 0)]
    while left:
        place = left.pop()
        if place in seen:
            continue
        seen.add(place)
        at = dict(zip(DiskLetter, place, strict=True))
        for disk in DiskLetter:
            if at[disk] == ends[disk]:
                continue
            if at[disk] in marks[disk]:
                number = marks[disk].index(at[disk])
                # Mark n of `a` follows mark n - 1 of `b`, and mark n of `b` follows mark n of `a`.
                needed = number - 1 if disk is DiskLetter.A else number
                if needed >= 0 and at[disk.other] <= marks[disk.other][needed]:
                    continue
            left.append((place[0] + (disk is DiskLetter.A), place[1] + (disk is DiskLetter.B)))
    return seen
