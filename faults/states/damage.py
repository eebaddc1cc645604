"""Damage to a disk's content beyond writes that land or not: bits flip, ranges are lost, writes go astray.

In the id of a crash state the damages follow the choice of writes. Each is applied to the content that this choice
leaves, so the id without its damages names the undamaged state. Damages of one state do not see each other. Offsets and
lengths are in bytes and whole sectors of 512:

    ".x" offset ":" length ":" count ":" hex16   `count` bits of the range are flipped, their places drawn by the seed
    ".z" offset ":" length                       the range reads zeros
    ".u" offset ":" length                       the range cannot be read (EIO)
    ".m" entry ":" offset                        the data of a write that did not land is at another place
    ".d" entry                                   the range of a DISCARD reads zeros, except where it was written since
    ".d" entry ":" bytes ":" ranges              the same for some units of the range, aligned on the device; 0 is the
                                                 unit in which the range begins. What a later write left free because it
                                                 was lost reads zeros too
    ".g" entry ":" sector ":" count ":" hex16    `count` sectors of a torn write, from this one to the end of its block
                                                 of 4096 or of the write, hold garbage, drawn by the seed

An honest disk can cause only the last two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self, get_args

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
class _Spelled:
    """What all kinds of damage have: a letter, and fields that are numbers."""

    letter: ClassVar[str]

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        numbers = [f"{value:016x}" if name == "seed" else str(value) for name, value in vars(self).items()]
        return f".{self.letter}{':'.join(numbers)}"

    @classmethod
    def parse(cls, numbers: str) -> Self:
        """Return the damage from its numbers, as spelled in an id."""
        pairs = zip(fields(cls), numbers.split(":"), strict=True)
        return cls(*(int(number, 16 if field.name == "seed" else 10) for field, number in pairs))


@dataclass(frozen=True)
class Flip(_Spelled):
    """Some bits of a range are flipped."""

    holds: ClassVar[Holds] = Holds.FLIP
    letter: ClassVar[str] = "x"
    offset_bytes: int
    length_bytes: int
    bit_count: int
    seed: int


@dataclass(frozen=True)
class Zeros(_Spelled):
    """A range reads zeros."""

    holds: ClassVar[Holds] = Holds.ZEROS
    letter: ClassVar[str] = "z"
    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True)
class Unreadable(_Spelled):
    """A range cannot be read; the reader gets EIO. The content itself is unchanged."""

    holds: ClassVar[Holds] = Holds.UNREADABLE
    letter: ClassVar[str] = "u"
    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True)
class Astray(_Spelled):
    """The data of a write is at a wrong place."""

    holds: ClassVar[Holds] = Holds.ASTRAY
    letter: ClassVar[str] = "m"
    entry_index: int
    offset_bytes: int


@dataclass(frozen=True)
class Discarded(_Spelled):
    """A DISCARD took effect: its range reads zeros, except for sectors that may have been written since.

    With `unit_bytes`, only these units of the range read zeros, and of these only sectors on which no later write has
    landed.
    """

    holds: ClassVar[Holds] = Holds.DISCARD
    letter: ClassVar[str] = "d"
    entry_index: int
    unit_bytes: int = 0
    # Ascending, with gaps in between.
    units: tuple[range, ...] = ()

    @property
    def text(self) -> str:
        """Return the damage as spelled in an id."""
        parts = ",".join(f"{part.start}" if len(part) == 1 else f"{part.start}-{part.stop - 1}" for part in self.units)
        return f".d{self.entry_index}" + (f":{self.unit_bytes}:{parts}" if self.unit_bytes else "")

    @classmethod
    def parse(cls, numbers: str) -> Self:
        """Return the damage from its numbers, as spelled in an id."""
        entry, *rest = numbers.split(":")
        if not rest:
            return cls(int(entry))
        return cls(int(entry), int(rest[0]), tuple(_units(part) for part in rest[1].split(",")))


@dataclass(frozen=True)
class Garbage(_Spelled):
    """The rest of the block in which a write was interrupted is noise; sectors count from the start of the write."""

    holds: ClassVar[Holds] = Holds.GARBAGE
    letter: ClassVar[str] = "g"
    entry_index: int
    first_sector: int
    sector_count: int
    seed: int

    def data(self) -> bytes:
        """Return the garbage."""
        # Philox is specified, so its stream stays the same from version to version of numpy.
        words = np.random.Philox(key=self.seed).random_raw(self.sector_count * SECTOR_BYTES // 8)
        return words.astype("<u8").tobytes()


Damage = Flip | Zeros | Unreadable | Astray | Discarded | Garbage

DAMAGE = (
    r"\.(?:x\d{1,18}:\d{1,8}:\d{1,8}:[0-9a-f]{16}|[zu]\d{1,18}:\d{1,8}|m\d{1,18}:\d{1,18}"
    r"|d\d{1,18}(?::\d{1,6}:\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)?"
    r"|g\d{1,18}:\d{1,8}:\d{1,8}:[0-9a-f]{16})"
)


def parse_damages(text: str) -> tuple[Damage, ...]:
    """Return the damages in the last part of an id, a text of repeated `DAMAGE`."""
    kinds = {kind.letter: kind for kind in get_args(Damage)}
    return tuple(kinds[part[1]].parse(part[2:]) for part in re.findall(DAMAGE, text))


def damage_extents(damage: Damage, log: WriteLog, read: Read, end: int, held: Callable[[], Int64Array]) -> list[Extent]:
    """Return what a damage puts on the device, over the undamaged state that `read` reads.

    The epoch of the state ends at `end`; `held` returns the entries that the state has on the medium.
    """
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
        case Discarded(entry, unit_bytes, units):
            rivals = _may_be_later(log, entry, held() if unit_bytes else np.arange(end))
            return _zeros_of(log, entry, rivals, [_part(log, entry, unit_bytes, part) for part in units])
        case Garbage(entry, first_sector):
            return [literal_extent(int(log.offset_bytes[entry]) + first_sector * SECTOR_BYTES, damage.data())]


def device_end(log: WriteLog) -> int:
    """Return the end of the last block that the log writes; the device is at least this long."""
    return -(-int((log.offset_bytes + log.payload_bytes).max(initial=0)) // BLOCK_BYTES) * BLOCK_BYTES


def may_be_covered(garbage: Garbage, log: WriteLog, epoch: Epoch) -> bool:
    """Whether a durable FUA write may have come after the interrupted write in a sector with garbage."""
    begin = int(log.offset_bytes[garbage.entry_index]) // SECTOR_BYTES + garbage.first_sector
    sectors = range(begin, begin + garbage.sector_count)
    return any(
        open_sector.writer == garbage.entry_index and open_sector.sector in sectors
        for open_sector in epoch.open_sectors
    )


def block_rests(log: WriteLog, entry: int) -> list[tuple[int, int]]:
    """Return what is left of each block of a write after 1, 2, ... sectors: (first sector in the write, count)."""
    sector_begin, count = int(log.offset_bytes[entry]) // SECTOR_BYTES, int(log.payload_bytes[entry]) // SECTOR_BYTES
    rests = []
    for sector in range(1, count):
        place = (sector_begin + sector) % (BLOCK_BYTES // SECTOR_BYTES)
        if place:
            rests.append((sector, min(count, sector + BLOCK_BYTES // SECTOR_BYTES - place) - sector))
    return rests


def discard_unit_count(log: WriteLog, discard: int, unit_bytes: int) -> int:
    """Return how many device-aligned units the range of a DISCARD touches."""
    begin, length = int(log.offset_bytes[discard]), int(log.length_bytes[discard])
    return (begin + length - 1) // unit_bytes - begin // unit_bytes + 1


def _units(text: str) -> range:
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def _part(log: WriteLog, discard: int, unit_bytes: int, units: range) -> range:
    """Return the sectors of some units of a DISCARD's range."""
    begin, end = int(log.offset_bytes[discard]), int(log.offset_bytes[discard] + log.length_bytes[discard])
    first = begin // unit_bytes
    low = max(begin, (first + units.start) * unit_bytes)
    return range(low // SECTOR_BYTES, min(end, (first + units.stop) * unit_bytes) // SECTOR_BYTES)


def _zeros_of(log: WriteLog, discard: int, rivals: Int64Array, parts: Sequence[range]) -> list[Extent]:
    """Return the zeros of a DISCARD where none of its rivals wrote; without parts, of its whole range."""
    begin, length = int(log.offset_bytes[discard]), int(log.length_bytes[discard])
    # Sectors that were never written read zeros anyway.
    had = _sectors_touched(log, np.arange(discard), begin, length)
    free = np.setdiff1d(had, _sectors_touched(log, rivals, begin, length))
    if parts:
        free = np.concatenate([free[(free >= part.start) & (free < part.stop)] for part in parts])
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
    sectors: Int64Array = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))
    return sectors


def _may_be_later(log: WriteLog, discard: int, among: Int64Array) -> Int64Array:
    """Return which of these entries may have come after a DISCARD.

    All later entries of the log may, and the FUA writes in reach: the log holds a FUA write ahead of ordinary writes of
    its own epoch and the next that completed before it. With an account, so may writes that completed after the FLUSH
    was submitted that took the DISCARD: a FLUSH submitted later may have completed first, and brought them into the log
    ahead of it.
    """
    flushes = np.flatnonzero(log.flags & EntryFlag.FLUSH)
    earlier = flushes[flushes < discard]
    begin = int(earlier[-2]) if len(earlier) > 1 else 0
    is_rival = (among > discard) | ((among >= begin) & ((log.flags[among] & EntryFlag.FUA) > 0))
    if log.account is not None and len(earlier) < len(flushes):
        is_rival |= log.account.completed[among] > log.account.submitted[flushes[len(earlier)]]
    return among[is_rival]
