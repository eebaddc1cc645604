"""The write log of one recording, in the format of the kernel's dm-log-writes target, opened for reading.

Promises: every column is a numpy array with one row for each entry; a log that opens without `LogError` can be walked,
replayed and cut without further checks of its format. A damaged or truncated file raises `LogError` and nothing else.
If the device's size is given, no entry ends after it, so what is made of a log takes memory for one device at most.

Format (drivers/md/dm-log-writes.c), little endian, in units of the superblock's `sectorsize`: one sector superblock
{magic u64, version u64, nr_entries u64, sectorsize u32}, then for each entry a one-sector header {sector u64,
nr_sectors u64, flags u64, data_len u64} and its payload of nr_sectors. A DISCARD has no payload; a MARK has its text
inline, after the header's 32 bytes.

Every replay ignores DISCARDs: a discard is a hint, the content of its range is undefined afterwards, no Linux file
system may rely on it, and the target itself keeps the old content over a device without discard.

Left out: the kernel refreshes nr_entries only on FUA, MARK and removal, so after a kill it is stale. `salvage=True`
walks past it to the last valid entry. It cannot tell entries of an older log after the end from entries of this log, so
write a recording to a zeroed device.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from rig.faults.log.account import Account
from rig.faults.log.arrays import BoolArray, ByteArray, Int64Array

MAGIC = 0x6A736677736872
VERSION = 1
SUPERBLOCK = struct.Struct("<QQQI")
HEADER = struct.Struct("<QQQQ")
# The smallest sector, and the unit in which the kernel counts.
SECTOR_BYTES = 512
SECTOR_BYTES_MAX = 65536
# Offsets on the device stay well inside int64, in which the columns are kept.
DEVICE_BYTES_MAX = 1 << 60


class EntryFlag(IntFlag):
    """Flags of a log entry, as the kernel writes them."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


_FLUSH, _FUA, _DISCARD, _MARK = 1, 2, 4, 8
_KNOWN_FLAGS = 31
_COLUMNS = ("flags", "header_offset_bytes", "offset_bytes", "length_bytes", "payload_bytes", "payload_offset_bytes")


class LogError(Exception):
    """A write log is damaged or not in the kernel's format; names file, entry number and file offset."""

    def __init__(self, path: str | Path, entry_index: int | None, offset_bytes: int, reason: str) -> None:
        place = "superblock" if entry_index is None else f"entry {entry_index}"
        super().__init__(f"{path}: {place} at byte {offset_bytes}: {reason}")
        self.path = Path(path)
        self.entry_index = entry_index
        self.offset_bytes = offset_bytes
        self.reason = reason


@dataclass(frozen=True)
class Mark:
    """A mark of the recorder: its place in the log and its text."""

    entry_index: int
    text: str


class WriteLog:
    """A write log opened for reading; a context manager. Columns are read-only arrays, one row for each entry."""

    def __init__(
        self, path: Path, data: mmap.mmap, sector_bytes: int, rows: _LogColumns, *, begin_bytes: int, device_bytes: int
    ) -> None:
        self.path = path
        # No entry ends after this.
        self.device_bytes = device_bytes
        # When each entry was submitted and when it completed; None if only the log is known.
        self.account: Account | None = None
        # Where the log begins in the file.
        self.begin_bytes = begin_bytes
        self._data = data
        self.sector_bytes = sector_bytes
        self.marks: tuple[Mark, ...] = tuple(rows.marks)
        self.entry_count = len(rows.flags)
        # The file offset just after the last entry.
        self.end_bytes = rows.end_bytes
        self.flags = _column(rows.flags)
        self.header_offset_bytes = _column(rows.headers)
        # Place and length on the device; a DISCARD has the discarded length here and no payload.
        self.offset_bytes = _column(rows.sectors) * sector_bytes
        self.length_bytes = _column(rows.sector_counts) * sector_bytes
        is_write = (self.flags & (_DISCARD | _MARK)) == 0
        self.payload_bytes = np.where(is_write, self.length_bytes, 0)
        self.payload_offset_bytes = np.where(self.payload_bytes > 0, self.header_offset_bytes + sector_bytes, 0)
        # Whether an entry is the last part of its write, see `split`.
        self.ends_write: BoolArray = np.ones(self.entry_count, dtype=bool)
        # The size of the parts; 0 if writes are whole.
        self.unit_bytes = 0
        self.reorder(np.arange(self.entry_count))

    @classmethod
    def open(
        cls, path: str | Path, *, salvage: bool = False, begin_bytes: int = 0, device_bytes: int = DEVICE_BYTES_MAX
    ) -> WriteLog:
        """Open the log of a device that begins at byte `begin_bytes` of the file, a multiple of the page size.

        Raise `LogError` if it is damaged. All offsets in the log's file, also in errors, count from `begin_bytes`.
        With `salvage`, walk past the superblock's entry count and stop at the last valid entry instead of raising.
        """
        path = Path(path)
        with path.open("rb") as file:
            size_bytes = file.seek(0, 2) - begin_bytes
            if size_bytes < SECTOR_BYTES:
                raise LogError(path, None, 0, f"the file has {size_bytes} bytes, less than one sector")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, offset=begin_bytes)
        try:
            entry_count, sector_bytes = _read_superblock(path, data)
            rows = _walk(path, data, sector_bytes, entry_count, device_bytes, salvage=salvage)
            return cls(path, data, sector_bytes, rows, begin_bytes=begin_bytes, device_bytes=device_bytes)
        except LogError:
            data.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file; a payload that is still referenced keeps the mapping alive until it is dropped."""
        try:
            self._data.close()
        except BufferError:
            return

    def payload(self, entry_index: int) -> memoryview:
        """Return the data of an entry without a copy; empty for FLUSH, DISCARD and MARK."""
        begin = int(self.payload_offset_bytes[entry_index])
        return memoryview(self._data)[begin : begin + int(self.payload_bytes[entry_index])]

    def bytes_at(self, offset_bytes: int, length_bytes: int) -> memoryview:
        """Return a run of bytes of the log's file without a copy."""
        return memoryview(self._data)[offset_bytes : offset_bytes + length_bytes]

    def replay(self, upto_entry: int, device_bytes: int) -> ByteArray:
        """Return the device after all entries before `upto_entry`, over zeros; DISCARDs are ignored, see above."""
        device: ByteArray = np.zeros(device_bytes, dtype=np.uint8)
        for entry_index in np.flatnonzero(self.payload_bytes[:upto_entry]).tolist():
            begin = int(self.offset_bytes[entry_index])
            end = begin + int(self.payload_bytes[entry_index])
            if end > device_bytes:
                raise self.error(entry_index, f"writes up to byte {end} of a device of {device_bytes} bytes")
            device[begin:end] = np.frombuffer(self.payload(entry_index), dtype=np.uint8)
        return device

    def reorder(self, order: Int64Array) -> None:
        """Number the entries anew: `order` lists their old numbers in the new order. MARKs must keep their order.

        `order` may list an entry several times, see `split`, and leave out a write, see `trim`.
        """
        for name in _COLUMNS:
            setattr(self, name, _freeze(getattr(self, name)[order]))
        self.ends_write = self.ends_write[order]
        self.entry_count = len(order)
        places = np.flatnonzero(self.flags & _MARK).tolist()
        self.marks = tuple(Mark(place, mark.text) for place, mark in zip(places, self.marks, strict=True))

    def split(self, unit_bytes: int) -> None:
        """Make an entry of each part of a write between multiples of `unit_bytes` of the device; number them anew.

        The parts of a write have its flags and follow each other. Call this once, before the log is used.
        """
        begins, ends = self.offset_bytes, self.offset_bytes + self.payload_bytes
        counts = np.where(self.payload_bytes > 0, -(-ends // unit_bytes) - begins // unit_bytes, 1)
        owner = np.repeat(np.arange(self.entry_count), counts)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        part_begins = np.maximum((begins[owner] // unit_bytes + rank) * unit_bytes, begins[owner])
        is_write = self.payload_bytes[owner] > 0
        part_begins = np.where(is_write, part_begins, begins[owner])
        lengths = np.minimum((part_begins // unit_bytes + 1) * unit_bytes, ends[owner]) - part_begins
        skips = part_begins - begins[owner]
        self.reorder(owner)
        self.offset_bytes = _freeze(part_begins)
        self.length_bytes = _freeze(np.where(is_write, lengths, self.length_bytes))
        self.payload_bytes = _freeze(np.where(is_write, lengths, 0))
        self.payload_offset_bytes = _freeze(self.payload_offset_bytes + skips)
        self.ends_write = rank == counts[owner] - 1
        self.unit_bytes = unit_bytes
        if self.account:
            self.account = self.account.of_parts(owner)

    def trim(self, begins_bytes: Int64Array, ends_bytes: Int64Array) -> BoolArray:
        """Cut each write down to what is between two places of the device; drop a write that has nothing there.

        Return which entries are kept. The entries after a dropped one are numbered anew.
        """
        is_write = self.payload_bytes > 0
        skipped = np.where(is_write, begins_bytes - self.offset_bytes, 0)
        length = np.where(is_write, ends_bytes - begins_bytes, self.length_bytes)
        self.offset_bytes = _freeze(self.offset_bytes + skipped)
        self.payload_offset_bytes = _freeze(self.payload_offset_bytes + skipped)
        self.length_bytes = _freeze(length)
        self.payload_bytes = _freeze(np.where(is_write, length, 0))
        kept: BoolArray = ~is_write | (length > 0)
        self.reorder(np.flatnonzero(kept))
        return kept

    def error(self, entry_index: int, reason: str) -> LogError:
        """Return a `LogError` that points at an entry of this log."""
        return LogError(self.path, entry_index, int(self.header_offset_bytes[entry_index]), reason)


class _LogColumns:
    """Columns under construction; plain lists, because the walk spends its time on appending."""

    def __init__(self) -> None:
        self.sectors: list[int] = []
        self.sector_counts: list[int] = []
        self.flags: list[int] = []
        self.headers: list[int] = []
        self.marks: list[Mark] = []
        self.end_bytes = 0


def _column(values: Iterable[int]) -> Int64Array:
    return _freeze(np.array(list(values), dtype=np.int64))


def _freeze(column: Int64Array) -> Int64Array:
    column.setflags(write=False)
    return column


def _read_superblock(path: Path, data: mmap.mmap) -> tuple[int, int]:
    magic, version, entry_count, sector_bytes = SUPERBLOCK.unpack_from(data)
    if magic != MAGIC:
        raise LogError(path, None, 0, f"magic is {magic:#x}, expected {MAGIC:#x}: this is not a dm-log-writes log")
    if version != VERSION:
        raise LogError(path, None, 8, f"version is {version}, expected {VERSION}")
    power_of_two = sector_bytes & (sector_bytes - 1) == 0
    if not (SECTOR_BYTES <= sector_bytes <= SECTOR_BYTES_MAX and power_of_two):
        raise LogError(path, None, 24, f"sectorsize is {sector_bytes}, expected a power of two from 512 to 65536")
    if len(data) < sector_bytes:
        raise LogError(path, None, 24, f"sectorsize is {sector_bytes}, but the whole file has {len(data)} bytes")
    return entry_count, sector_bytes


def _walk(
    path: Path, data: mmap.mmap, sector_bytes: int, entry_count: int, device_bytes: int, *, salvage: bool
) -> _LogColumns:
    """Read the headers one by one: an entry's place follows from the lengths of all entries before it."""
    rows = _LogColumns()
    unpack, size_bytes, sectors_max = HEADER.unpack_from, len(data), device_bytes // sector_bytes
    position, entry_index, reason = sector_bytes, 0, ""
    while salvage or entry_index < entry_count:
        if position + sector_bytes > size_bytes:
            reason = f"the file ends at byte {size_bytes}, after {entry_index} of {entry_count} entries"
            break
        sector, sector_count, flags, text_bytes = unpack(data, position)
        payload_sectors = 0 if flags & _DISCARD else sector_count
        after = position + (1 + payload_sectors) * sector_bytes
        reason = ""
        if sector > sectors_max or sector_count > sectors_max - sector:
            reason = f"sector {sector} with {sector_count} sectors is not a place on a device of {device_bytes} bytes"
        elif after > size_bytes:
            reason = f"a payload of {sector_count} sectors ends after the file's {size_bytes} bytes"
        elif flags & _MARK or flags & ~_KNOWN_FLAGS or flags & _DISCARD or not sector_count:
            reason = _complaint(data, position, sector_bytes, (sector_count, flags, text_bytes))
        if reason:
            break
        if flags & _MARK:
            text_begin = position + HEADER.size
            rows.marks.append(Mark(entry_index, data[text_begin : text_begin + text_bytes].decode("ascii")))
        rows.sectors.append(sector)
        rows.sector_counts.append(sector_count)
        rows.flags.append(flags)
        rows.headers.append(position)
        position, entry_index = after, entry_index + 1
    if reason and not salvage:
        raise LogError(path, entry_index, position, reason)
    rows.end_bytes = position
    return rows


def _complaint(data: mmap.mmap, position: int, sector_bytes: int, header: tuple[int, int, int]) -> str:
    """Return what is wrong with an entry that is not a plain write, or an empty text."""
    sector_count, flags, text_bytes = header
    if flags & ~_KNOWN_FLAGS:
        return f"flags are {flags:#x}, known are {_KNOWN_FLAGS:#x}"
    if flags & _MARK:
        if flags != _MARK or sector_count:
            return f"a MARK with flags {flags:#x} and {sector_count} sectors"
        if text_bytes > sector_bytes - HEADER.size:
            return f"a MARK text of {text_bytes} bytes does not fit its sector"
        text = data[position + HEADER.size : position + HEADER.size + text_bytes]
        return "" if all(32 < byte < 127 for byte in text) else f"a MARK text is not one ASCII token: {text[:40]!r}"
    if flags & _DISCARD and flags & (_FLUSH | _FUA):
        return f"a DISCARD with flags {flags:#x}"
    if not sector_count and not flags & _FLUSH:
        return f"flags {flags:#x} and no sectors: neither a write nor a flush"
    return ""
