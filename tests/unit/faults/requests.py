"""A brute-force model of a disk whose requests take time: submission and completion are events of their own.

It emits the log that dm-log-writes would have written and the records of the block trace below it, and remembers which
contents a cut can leave after each event. Independent of `faults`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.unit.faults.disks import SECTOR, Content, Moment, Op, emit, reachable

_QUEUED, _COMPLETED = 1, 8
# The categories of include/uapi/linux/blktrace_api.h: a write, a flush, a FUA write.
_CATEGORIES = {"write": 1 << 17, "flush": 1 << 17 | 1 << 18, "fua": 1 << 17 | 1 << 31}


@dataclass
class Requests:
    """A disk at work. `moments` has one for each event."""

    # In the order of completion.
    completed: list[Op] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    flying: list[Op] = field(default_factory=list)
    # What each FLUSH in flight took: writes to log, and the numbers of all that had completed.
    taken: dict[Op, tuple[list[Op], set[int]]] = field(default_factory=dict)
    waiting: list[Op] = field(default_factory=list)
    log: list[Op] = field(default_factory=list)
    records: bytearray = field(default_factory=bytearray)
    moments: list[Moment] = field(default_factory=list)
    marks_seen: int = 0
    # Entry of a FUA write or FLUSH in the log -> the moment just before it completed.
    before: dict[int, Moment] = field(default_factory=dict)

    def submit(self, op: Op) -> None:
        """Queue a request; a FLUSH takes what has completed."""
        self._trace(op, _QUEUED)
        self.flying.append(op)
        if op.kind == "flush":
            self.taken[op], self.waiting = (self.waiting, set(range(len(self.completed)))), []
        self._remember()

    def complete(self, op: Op) -> None:
        """Complete a request in flight."""
        if op.kind != "write":
            entry = len(self.log) + (len(self.taken[op][0]) if op.kind == "flush" else 0)
            self.before[entry] = self._moment()
        self._trace(op, _COMPLETED)
        self.flying.remove(op)
        if op.kind == "flush":
            writes, durable = self.taken.pop(op)
            self.log += [*writes, op]
            self.durable |= durable
        else:
            if op.kind == "fua":
                self.durable.add(len(self.completed))
            (self.log if op.kind == "fua" else self.waiting).append(op)
            self.completed.append(op)
        self._remember()

    def mark(self) -> None:
        """Write a mark, which the log has at once."""
        self.log.append(Op("mark"))
        self.marks_seen += 1
        self._remember()

    def end(self, path: Path) -> None:
        """Complete everything, and write the log."""
        for op in tuple(self.flying):
            self.complete(op)
        self.log += [*self.waiting, Op("mark")]
        emit(path, self.log, 1)

    def contents(self) -> dict[Content, int]:
        """Return what a cut can leave, with the most marks seen before it."""
        return reachable(self.moments)

    def view(self) -> Content:
        """Return what a reader sees in the end."""
        (content,) = Moment(tuple((op, True) for op in self.completed), 0).whole_contents()
        return content

    def has_alike(self, flush: Op) -> bool:
        """Whether a FLUSH of the same place is in flight that took writes of the same places as this one would.

        Nothing but the bytes would tell which of the two a log has first.
        """
        own = [(op.sector, op.count) for op in self.waiting]
        return bool(own) and any(
            flush.sector == other.sector and own == [(op.sector, op.count) for op in writes]
            for other, (writes, _) in self.taken.items()
        )

    def has_older_plain_write(self) -> bool:
        """Whether a FUA write completed after a plain write of the same place that no FLUSH had made durable."""
        places = [(op, set(op.sectors())) for op in self.completed]
        return any(
            fua.kind == "fua" and op.kind == "write" and sectors & place
            for rank, (fua, sectors) in enumerate(places) for op, place in places[:rank]
        )  # fmt: skip

    def _remember(self) -> None:
        self.moments.append(self._moment())

    def _moment(self) -> Moment:
        writes = [(op, rank in self.durable) for rank, op in enumerate(self.completed)]
        writes += [(op, False) for op in self.flying if op.kind != "flush"]
        return Moment(tuple(writes), self.marks_seen)

    def _trace(self, op: Op, action: int) -> None:
        number, length = len(self.records) // 48, op.count * SECTOR
        self.records += struct.pack(
            "<IIQQIIIIIHH", 0x65617407, number, number, op.sector, length,
            action | _CATEGORIES[op.kind], 7, 9, 0, 0, 0,
        )  # fmt: skip


@dataclass
class Overlapping(Requests):
    """A disk at work on writes of one place that are in flight together.

    The block layer keeps no order between them. So each write is carried out at some moment between its submission and
    its completion; which one is later shows, whatever completed first.
    """

    carried: list[Op] = field(default_factory=list)

    def carry(self, op: Op) -> None:
        """Carry out a write that has been submitted; it is in the cache from now on."""
        self.carried.append(op)
        self._remember()

    def complete(self, op: Op) -> None:
        """Complete a request in flight; a write is carried out by then."""
        if op.kind != "flush" and op not in self.carried:
            self.carry(op)
        super().complete(op)

    def view(self) -> Content:
        """Return what a reader sees in the end."""
        (content,) = Moment(tuple((op, True) for op in self.carried), 0).whole_contents()
        return content

    def _moment(self) -> Moment:
        durable = {self.completed[rank] for rank in self.durable if rank < len(self.completed)}
        late = [op for op in self.flying if op.kind != "flush" and op not in self.carried]
        writes = [(op, op in durable) for op in self.carried] + [(op, False) for op in late]
        return Moment(tuple(writes), self.marks_seen)


@st.composite
def overlapping_requests(draw: st.DrawFn, sectors: int) -> Overlapping:
    """Draw a disk at work; some of its writes of one place are in flight together."""
    disk = Overlapping()
    work(
        disk, lambda options: draw(st.sampled_from(options)), draw(st.integers(1, 26)), sectors, {"write": 5, "fua": 2}
    )
    return disk


@st.composite
def some_requests(draw: st.DrawFn, sectors: int, *, writes_max: int = 6, fuas_max: int = 2) -> Requests:
    """Draw a disk at work: at most two flushes, maybe in flight together; no two writes of one place in flight."""
    disk = Requests()
    step_count = draw(st.integers(1, 22))
    writes = {"write": writes_max, "fua": fuas_max}
    work(disk, lambda options: draw(st.sampled_from(options)), step_count, sectors, writes)
    return disk


def work(
    disk: Requests, chosen: Callable[[Sequence[Any]], Any], step_count: int, sectors: int, writes: Mapping[str, int]
) -> None:
    """Let a disk take this many steps, each chosen among those that are possible; `writes` is the most of each kind."""
    left = {**writes, "flush": 2, "mark": 3}
    for _ in range(step_count):
        carried = disk.carried if isinstance(disk, Overlapping) else None
        busy = {sector for op in disk.flying for sector in op.sectors()} if carried is None else set[int]()
        free = [sector for sector in range(sectors) if sector not in busy]
        kinds = [kind for kind, count in left.items() if count]
        choices = [kind for kind in kinds if free or kind in {"flush", "mark"}]
        # Two in flight, either of them the first to complete, are to be no rarity.
        choices += ["flush"] * 3 if left["flush"] and disk.taken else []
        idle = [op for op in disk.flying if carried is not None and op.kind != "flush" and op not in carried]
        choices += ["carry"] * 2 * len(idle)
        kind = chosen([*choices, *["complete"] * 2 * len(disk.flying)] or ["none"])
        if kind == "complete":
            disk.complete(chosen(disk.flying))
        elif kind == "carry" and isinstance(disk, Overlapping):
            disk.carry(chosen(idle))
        elif kind == "mark":
            disk.mark()
        elif kind == "flush":
            # One that dm split off a write with data has the place of that write; two in flight may have the same.
            flush = Op("flush", chosen([0, *range(sectors)]), 0, left["flush"])
            if not disk.has_alike(flush):
                disk.submit(flush)
        elif kind != "none":
            first = chosen(free)
            count = 2 if first + 1 in free and chosen([False, True]) else 1
            # Each write has bytes of its own, so that two in flight are never mistaken for each other.
            disk.submit(Op(kind, first, count, 1 + sum(left.values())))
        if kind in left:
            left[kind] -= 1
