"""Damage to a disk's content beyond writes that land or not: bits flip, ranges are lost, writes go astray.

In the id of a crash state the damages follow the choice of writes. Each is applied to the content that this choice
leaves, so the id without its damages names the undamaged state. Damages of one state do not see each other. Offsets and
lengths are in bytes and whole sectors of 512:

    ".x" offset ":" length ":" count ":" hex16   `count` bits of the range are flipped, their places drawn by the seed
    ".z" offset ":" length                       the range reads zeros
    ".u" offset ":" length                       the range cannot be read (EIO)
    ".m" entry ":" offset                        the data of a write that did not land is at another place
    ".d" entry                                   the range of a DISCARD reads zeros, except where it was written since
    ".g" entry ":" sector ":" count ":" hex16    `count` sectors of a torn write, from this one to the end of its block
                                                 of 4096 or of the write, hold garbage, drawn by the seed

An honest disk can cause only the last two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from rig.faults.log.arrays import Int64Array
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import Extent, literal_extent, touching
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog

BLOCK_BYTES = 4096
# The longest damaged range, because a damaged range is carried as literal bytes.
LENGTH_BYTES_MAX = 1 << 20
# (offset, length) on the device -> the bytes there.
Read = Callable[[int, int], bytes]


class Holds(StrEnum):
    """The kinds of damage in a content; the value is the spelling in results."""

    FLIP = "flip"
    ZEROS = "zeros"
    UNREADABLE = "unreadable"
    ASTRAY = "astray"
    DISCARD = "discard"
    GARBAGE = "garbage"


@dataclass(frozen=True)
class Flip:
    """Some bits of a range are flipped."""

    holds: ClassVar[Holds] = Holds.FLIP
    offset_bytes: int
    length_bytes: int
    bit_count: int
    seed: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".x{self.offset_bytes}:{self.length_bytes}:{self.bit_count}:{self.seed:016x}"


@dataclass(frozen=True)
class Zeros:
    """A range reads zeros."""

    holds: ClassVar[Holds] = Holds.ZEROS
    offset_bytes: int
    length_bytes: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".z{self.offset_bytes}:{self.length_bytes}"


@dataclass(frozen=True)
class Unreadable:
    """A range cannot be read; the reader gets EIO. The content itself is unchanged."""

    holds: ClassVar[Holds] = Holds.UNREADABLE
    offset_bytes: int
    length_bytes: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".u{self.offset_bytes}:{self.length_bytes}"


@dataclass(frozen=True)
class Astray:
    """The data of a write is at a wrong place."""

    holds: ClassVar[Holds] = Holds.ASTRAY
    entry_index: int
    offset_bytes: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".m{self.entry_index}:{self.offset_bytes}"


@dataclass(frozen=True)
class Discarded:
    """A DISCARD took effect: its range reads zeros, except for sectors that may have been written since."""

    holds: ClassVar[Holds] = Holds.DISCARD
    entry_index: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".d{self.entry_index}"


@dataclass(frozen=True)
class Garbage:
    """The rest of the block in which a write was interrupted is noise; sectors count from the start of the write."""

    holds: ClassVar[Holds] = Holds.GARBAGE
    entry_index: int
    first_sector: int
    sector_count: int
    seed: int

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        return f".g{self.entry_index}:{self.first_sector}:{self.sector_count}:{self.seed:016x}"

    def data(self) -> bytes:
        """Return the garbage."""
        # Philox is specified, so its stream stays the same from version to version of numpy.
        words = np.random.Philox(key=self.seed).random_raw(self.sector_count * SECTOR_BYTES // 8)
        return words.astype("<u8").tobytes()


Damage = Flip | Zeros | Unreadable | Astray | Discarded | Garbage

DAMAGE = (
    r"\.(?:x\d{1,18}:\d{1,8}:\d{1,8}:[0-9a-f]{16}|[zu]\d{1,18}:\d{1,8}|m\d{1,18}:\d{1,18}|d\d{1,18}"
    r"|g\d{1,18}:\d{1,8}:\d{1,8}:[0-9a-f]{16})"
)


def parse_damages(text: str) -> tuple[Damage, ...]:
    """Return the damages in the last part of an id, a text of repeated `DAMAGE`."""
    return tuple(_parse(part) for part in re.findall(DAMAGE, text))


def damage_extents(damage: Damage, log: WriteLog, read: Read, end: int) -> list[Extent]:
    """Return what a damage puts on the device, over the undamaged state that `read` reads; its epoch ends at `end`."""
    match damage:
        case Flip(offset_bytes, length_bytes, bit_count, seed):
            bits = np.unpackbits(np.frombuffer(read(offset_bytes, length_bytes), dtype=np.uint8))
            # Philox is specified, so its stream stays the same from version to version of numpy.
            draws = np.random.Philox(key=seed).random_raw(len(bits))
            bits[np.argpartition(draws, bit_count - 1)[:bit_count]] ^= 1
            return [literal_extent(offset_bytes, np.packbits(bits).tobytes())]
        case Zeros(offset_bytes, length_bytes):
            return [literal_extent(offset_bytes, bytes(length_bytes))]
        case Unreadable():
            return []
        case Astray(entry, offset_bytes):
            return [Extent(offset_bytes, int(log.payload_offset_bytes[entry]), int(log.payload_bytes[entry]))]
        case Discarded(entry):
            return _discarded(log, entry, end)
        case Garbage(entry, first_sector):
            return [literal_extent(int(log.offset_bytes[entry]) + first_sector * SECTOR_BYTES, damage.data())]


def device_end(log: WriteLog) -> int:
    """Return the end of the last block that the log writes; the device is at least this long."""
    return -(-int((log.offset_bytes + log.payload_bytes).max(initial=0)) // BLOCK_BYTES) * BLOCK_BYTES


def _parse(part: str) -> Damage:
    kind, fields = part[1], part[2:].split(":")
    if kind == "x":
        return Flip(int(fields[0]), int(fields[1]), int(fields[2]), int(fields[3], 16))
    if kind == "g":
        return Garbage(int(fields[0]), int(fields[1]), int(fields[2]), int(fields[3], 16))
    numbers = [int(field) for field in fields]
    if kind == "d":
        return Discarded(*numbers)
    kinds: dict[str, type[Zeros | Unreadable | Astray]] = {"z": Zeros, "u": Unreadable, "m": Astray}
    return kinds[kind](*numbers)


def may_be_covered(garbage: Garbage, log: WriteLog, epoch: Epoch) -> bool:
    """Whether a durable FUA write may have come after the interrupted write in a sector with garbage."""
    begin = int(log.offset_bytes[garbage.entry_index]) // SECTOR_BYTES + garbage.first_sector
    sectors = range(begin, begin + garbage.sector_count)
    return any(one.writer == garbage.entry_index and one.sector in sectors for one in epoch.open_sectors)


def block_rests(log: WriteLog, entry: int) -> list[tuple[int, int]]:
    """Return what is left of each block of a write after 1, 2, ... sectors: (first sector in the write, count)."""
    sector_begin, count = int(log.offset_bytes[entry]) // SECTOR_BYTES, int(log.payload_bytes[entry]) // SECTOR_BYTES
    rests = []
    for sector in range(1, count):
        place = (sector_begin + sector) % (BLOCK_BYTES // SECTOR_BYTES)
        if place:
            rests.append((sector, min(count, sector + BLOCK_BYTES // SECTOR_BYTES - place) - sector))
    return rests


def _discarded(log: WriteLog, discard: int, end: int) -> list[Extent]:
    begin, length = int(log.offset_bytes[discard]), int(log.length_bytes[discard])
    # Sectors that were never written read zeros anyway.
    had = _sectors_touched(log, np.arange(discard), begin, length)
    free = np.setdiff1d(had, _sectors_touched(log, _rivals(log, discard, end), begin, length))
    runs = np.split(free, np.flatnonzero(np.diff(free) != 1) + 1) if len(free) else []
    return [
        literal_extent(part, bytes(min(LENGTH_BYTES_MAX, (int(run[-1]) + 1) * SECTOR_BYTES - part)))
        for run in runs
        for part in range(int(run[0]) * SECTOR_BYTES, (int(run[-1]) + 1) * SECTOR_BYTES, LENGTH_BYTES_MAX)
    ]


def _sectors_touched(log: WriteLog, entries: Int64Array, offset_bytes: int, length_bytes: int) -> Int64Array:
    """Return the numbers of the sectors of a range that any of these entries wrote, ascending."""
    hit = entries[touching(log, entries, offset_bytes, length_bytes)]
    begins = np.maximum(log.offset_bytes[hit], offset_bytes) // SECTOR_BYTES
    ends = np.minimum(log.offset_bytes[hit] + log.payload_bytes[hit], offset_bytes + length_bytes) // SECTOR_BYTES
    parts = [np.arange(first, last) for first, last in zip(begins.tolist(), ends.tolist(), strict=True)]
    found: Int64Array = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))
    return found


def _rivals(log: WriteLog, discard: int, end: int) -> Int64Array:
    """Return the entries that may have completed after a DISCARD: all later entries, and the FUA writes in reach.

    The log holds a FUA write ahead of ordinary writes of its own epoch and the next that completed before it.
    """
    flushes = np.flatnonzero(log.flags[:discard] & EntryFlag.FLUSH)
    begin = int(flushes[-2]) if len(flushes) > 1 else 0
    fuas = begin + np.flatnonzero(log.flags[begin:discard] & EntryFlag.FUA)
    return np.concatenate([fuas, np.arange(discard + 1, end)])
