"""A brute-force model of a disk with a volatile cache, for the tests of crash states.

The model runs writes, FUA writes, flushes that take time, and marks. It remembers for every moment which contents a cut
can leave and how many marks the caller has seen, and emits the log that dm-log-writes would have written. Contents are
tuples with one number for each sector of 512 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from rig.faults import CrashState, Extent, Fault, Logs, Plan, WriteLog, base_extents, plan

SECTOR = 512
DISK_SECTORS = 32

Content = tuple[int, ...]
Device = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Op:
    kind: str
    sector: int = 0
    count: int = 0
    fill: int = 0

    @property
    def end(self) -> int:
        return self.sector + self.count

    def values(self) -> tuple[int, ...]:
        """The data written: zeros for a fill of 0, otherwise a different value in each sector of the write."""
        return tuple(range(self.fill * 32 + 1, self.fill * 32 + 1 + self.count)) if self.fill else (0,) * self.count

    def sectors(self) -> dict[int, int]:
        return dict(enumerate(self.values(), self.sector))


@dataclass(frozen=True)
class Moment:
    """A moment at which the power may go: completed writes in order, how many are durable, and the marks seen."""

    writes: tuple[tuple[Op, bool], ...]
    marks_seen: int

    def versions(self, unit_sectors: int) -> list[list[tuple[int, ...]]]:
        """Return for each unit of the disk its possible contents."""
        found = []
        for begin in range(0, DISK_SECTORS, unit_sectors):
            possible = {(0,) * unit_sectors}
            for op, is_durable in self.writes:
                if op.end <= begin or begin + unit_sectors <= op.sector:
                    continue
                sectors = op.sectors()
                landed = {
                    tuple(sectors.get(begin + rank, old) for rank, old in enumerate(version)) for version in possible
                }
                possible = landed if is_durable else possible | landed
            found.append(sorted(possible))
        return found

    def whole_contents(self) -> set[Content]:
        """Return every content if writes land whole or not at all."""
        possible = {(0,) * DISK_SECTORS}
        for op, is_durable in self.writes:
            values = op.values()
            landed = {(*content[: op.sector], *values, *content[op.end :]) for content in possible}
            possible = landed if is_durable else possible | landed
        return possible


@dataclass
class Disk:
    """A disk with a volatile cache under dm-log-writes; FLUSH takes time, FUA and other writes complete at once."""

    order: list[Op] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    unlogged: list[Op] = field(default_factory=list)
    in_flush: tuple[list[Op], set[int]] | None = None
    log: list[Op] = field(default_factory=list)
    marks_seen: int = 0
    moments: list[Moment] = field(default_factory=list)
    # The same for a disk that may apply discards: each discarded sector is a write of zeros that need not land.
    discard_moments: list[Moment] = field(default_factory=list)
    # (writes completed before it, a sector of a discard)
    discards: list[tuple[int, Op]] = field(default_factory=list)
    # What was durable after each flush, and before the first.
    durable_after: list[set[int]] = field(default_factory=lambda: [set()])
    # At each moment: writes completed, flushes completed, marks seen.
    counts: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, ops: list[Op]) -> None:
        self._remember()
        for op in ops:
            self._step(op)
            self._remember()
        if self.in_flush:
            self._step(Op("flush-end"))
            self._remember()
        self.log += [*self.unlogged, Op("mark")]

    def lying_moments(self, flushes_ignored: int) -> Iterator[Moment]:
        """Yield the moments of a disk that ignored its last flushes, and FUA since then."""
        for write_count, flush_count, marks_seen in self.counts:
            if flushes_ignored <= flush_count:
                durable = self.durable_after[flush_count - flushes_ignored]
                writes = enumerate(self.order[:write_count])
                yield Moment(tuple((op, rank in durable) for rank, op in writes), marks_seen)

    def views(self) -> dict[Content, int]:
        """Return what a reader saw at any moment, with the marks seen at the last such moment."""
        return {
            next(iter(Moment(tuple((op, True) for op in self.order[:write_count]), 0).whole_contents())): marks_seen
            for write_count, _, marks_seen in self.counts
        }

    def view(self) -> Content:
        """The content that a reader of the disk sees without a cut."""
        return next(iter(Moment(tuple((op, True) for op in self.order), 0).whole_contents()))

    def _step(self, op: Op) -> None:
        if op.kind == "mark":
            self.marks_seen += 1
            self.log.append(op)
        elif op.kind == "write":
            self.order.append(op)
            self.unlogged.append(op)
        elif op.kind == "discard":
            self.unlogged.append(op)
            self.discards += [(len(self.order), Op("write", op.sector + rank, 1, 0)) for rank in range(op.count)]
        elif op.kind == "fua":
            self._remember(in_flight=op)
            self.durable.add(len(self.order))
            self.order.append(op)
            self.log.append(op)
        elif op.kind == "flush-begin" and self.in_flush is None:
            self.in_flush = (self.unlogged, set(range(len(self.order))))
            self.unlogged = []
        elif op.kind == "flush-end" and self.in_flush is not None:
            taken, now_durable = self.in_flush
            self.durable |= now_durable
            self.log += [*taken, Op("flush")]
            self.durable_after.append(set(self.durable))
            self.in_flush = None

    def _remember(self, in_flight: Op | None = None) -> None:
        writes = [(op, rank in self.durable) for rank, op in enumerate(self.order)]
        writes += [(in_flight, False)] if in_flight else []
        self.moments.append(Moment(tuple(writes), self.marks_seen))
        self.counts.append((len(self.order), len(self.durable_after) - 1, self.marks_seen))
        for place, zeros in reversed(self.discards):
            writes.insert(place, (zeros, False))
        self.discard_moments.append(Moment(tuple(writes), self.marks_seen))


FLAGS = {"write": 0, "flush": 1, "fua": 2, "discard": 4, "mark": 8}


def emit(path: Path, log: list[Op], align: int) -> None:
    """Write what dm-log-writes logs on a disk whose sectors are `align` times 512 bytes."""
    sector_bytes = align * SECTOR
    parts = [struct.pack("<QQQI", 0x6A736677736872, 1, len(log), sector_bytes).ljust(sector_bytes, b"\0")]
    for index, op in enumerate(log):
        text = b"ack" if op.kind == "mark" else b""
        # The FLUSH split off a FUA write keeps the FUA flag.
        flags = FLAGS["flush"] | FLAGS["fua"] if op.kind == "flush" and index % 2 else FLAGS[op.kind]
        header = struct.pack("<QQQQ", op.sector // align, op.count // align, flags, len(text))
        parts.append((header + text).ljust(sector_bytes, b"\0"))
        if op.kind in {"write", "fua"}:
            parts += [struct.pack("<I", value) * (SECTOR // 4) for value in op.sectors().values()]
    path.write_bytes(b"".join(parts))


def content_of(device: Device) -> Content:
    words = device.view("<u4").reshape(DISK_SECTORS, -1)
    assert (words == words[:, :1]).all()
    return tuple(words[:, 0].tolist())


def apply(device: Device, file: bytes, extents: list[Extent]) -> None:
    for extent in extents:
        source = extent.literal or file[extent.source_offset_bytes :][: extent.length_bytes]
        assert len(source) == extent.length_bytes
        begin = extent.device_offset_bytes
        device[begin : begin + extent.length_bytes] = np.frombuffer(source, dtype=np.uint8)


def rebuild(log: WriteLog, state: CrashState) -> Content:
    """The content as a verifier builds it, as one number a sector."""
    return content_of(rebuild_device(log, state))


def rebuild_device(log: WriteLog, state: CrashState) -> Device:
    """The content as a verifier builds it: the base, then the state's extents, from the bytes of the file."""
    file, bases, _ = _known_of(log, id(log.header_offset_bytes))
    if state.base_end not in bases:
        base = bases[state.base_end] = np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8)
        apply(base, file, base_extents(log, 0, state.base_end // 2))
        apply(base, file, base_extents(log, state.base_end // 2, state.base_end))
    device = bases[state.base_end].copy()
    apply(device, file, state.extents(log))
    return device


@lru_cache(maxsize=1)
def _known_of(log: WriteLog, _column: int) -> tuple[bytes, dict[int, Device], object]:
    """Return the log's file and the bases built so far; the column, kept alive, is another once entries are renumbered.

    Many states have one base.
    """
    return log.path.read_bytes(), {}, log.header_offset_bytes


def in_log_order(disk: Disk) -> Disk:
    """The run in log order whose flushes took no time; it gives the same log."""
    again = Disk()
    ops = [[Op("flush-begin"), Op("flush-end")] if op.kind == "flush" else [op] for op in disk.log[:-1]]
    again.run([op for pair in ops for op in pair])
    assert again.log == disk.log
    return again


def reachable(moments: Iterable[Moment]) -> dict[Content, int]:
    """Return every content that a cut at any of these moments can leave, with the most marks seen at such a moment."""
    found: dict[Content, int] = {}
    for moment in moments:
        for content in moment.whole_contents():
            found[content] = max(found.get(content, 0), moment.marks_seen)
    return found


def marks_claimed(log: WriteLog, state: CrashState) -> int:
    return sum(mark.entry_index < state.instant for mark in log.marks if mark.entry_index < log.entry_count - 1)


@st.composite
def some_ops(
    draw: st.DrawFn, sectors: int, fua_from: int, count_max: int, *, writes_max: int, align: int = 1
) -> list[Op]:
    """Draw a run of the disk; FUA writes start at sector `fua_from`, others end before it unless it is 0."""
    ops: list[Op] = []
    pending, in_flush = 0, False
    for _ in range(draw(st.integers(0, 14))):
        kinds = ["write"] * 3 * (pending < writes_max) + ["fua", "fua", "mark", "flush-begin", "flush-end", "flush-end"]
        kind = draw(st.sampled_from([*kinds, "discard"]))
        op = Op(kind)
        if kind in {"write", "fua", "discard"}:
            low, high = (fua_from, sectors) if kind == "fua" else (0, fua_from or sectors)
            places = (high - low) // align
            first = draw(st.integers(0, places - 1))
            count = draw(st.integers(1, min(count_max, places - first)))
            op = Op(kind, low + first * align, count * align, draw(st.sampled_from([0, 1, 2, 2, 3])))
        # A FLUSH takes the waiting writes, unless one is already in flight.
        pending = 0 if kind == "flush-begin" and not in_flush else pending + (kind == "write")
        in_flush = kind == "flush-begin" or (in_flush and kind != "flush-end")
        ops.append(op)
    return ops


def alike_transactions(count: int, batch: int, period: int) -> list[Op]:
    """Several transactions of the same writes, each followed by `period` - 1 epochs of another kind."""
    flush = [Op("flush-begin"), Op("flush-end")]
    ops = []
    for number in range(count):
        ops += [Op("write", sector, 1, 1 + number) for sector in range(batch)] + flush
        for other in range(period - 1):
            ops += [Op("write", 20 + other, 1, 1 + number), *flush]
    return ops


def run_of(path: Path, ops: list[Op], align: int = 1) -> Disk:
    disk = Disk()
    disk.run(ops)
    emit(path, disk.log, align)
    return disk


ONE_DISK = [fault for fault in Fault if fault is not Fault.TWODISK]


def everything(fault: Fault, log: WriteLog, first_entry: int = -1) -> Plan:
    return plan(fault, Logs(log), first_entry=first_entry, states_max=10**6, seed=1)


def passes_self_check(log: WriteLog, disk: Disk) -> bool:
    return disk.view() == content_of(log.replay(log.entry_count, DISK_SECTORS * SECTOR))
