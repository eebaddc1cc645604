"""The story behind a content: which choice of the writes in reach can have left it; part of the checker.

The search walks the writes from the newest to the oldest. A write lands if all its sectors that no newer landed write
covers hold its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rig.faults.log.arrays import ByteArray, Int64Array
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog
from rig.faults.log.order import NONE, Order

Mask = NDArray[np.bool_]
_BLOCK_SECTORS = 4096 // SECTOR_BYTES
# Plain numbers: members of an enumeration take longer.
_FUA, _AT_ONCE = int(EntryFlag.FUA), int(EntryFlag.FUA | EntryFlag.MARK | EntryFlag.FLUSH)


class Rule(StrEnum):
    """Which choices of unflushed writes an honest disk can leave."""

    WHOLE = "whole"
    TORN = "torn"
    SHORN = "shorn"
    ORDERED = "ordered"
    DURABLE = "durable"
    SEEN = "seen"
    DISCARDS = "discards"


@dataclass(frozen=True)
class Instant:
    """An instant: its epoch is the entries from `begin` up to the FLUSH at `end`; `after` is the next FLUSH.

    `moment` is the instant as an event of the account of submissions.
    """

    begin: int
    end: int
    after: int
    instant: int
    moment: int


class Story:
    """The search for a choice of writes that explains a content at one instant under one rule."""

    def __init__(self, log: WriteLog, order: Order, cut: Instant, rule: Rule, unit_bytes: int) -> None:
        self._log = log
        self._order = order
        self._cut = cut
        self._rule = rule
        self._unit_sectors = unit_bytes // SECTOR_BYTES

    def offender(self, content: ByteArray, wrong: Mask, *, is_sure: bool) -> int | None:
        """Return the first sector that no choice explains, or None; `wrong` marks sectors that differ from durable."""
        self._content, self._is_sure = content, is_sure
        self._waiting, self._unflushed = self._in_flight(), self._not_flushed()
        self._weigh_open_floor(wrong)
        if self._rule in (Rule.ORDERED, Rule.SEEN):
            return self._ordered_offender(wrong)
        covered = np.zeros(len(wrong), dtype=bool)
        # The newest write that landed in each sector.
        self._newest = np.full(len(wrong), NONE, dtype=np.int64)
        writes = [entry for entry in self._unflushed if self._log.payload_bytes[entry]]
        is_known = is_sure or self._is_accounted
        hidden = covered if is_known else self._hiding_sectors(writes)
        for entry in self._newest_first():
            if entry in self._waiting:
                self._land(entry, self._alike(entry), covered, hidden)
            elif self._log.payload_bytes[entry]:
                self._land(entry, self._fits(entry), covered, covered)
            elif self._rule is Rule.DISCARDS:
                place = self._order.sectors(entry)
                covered[place] |= self._zero_sectors(entry, self._cut.instant)
        wrong &= ~covered
        if self._rule is Rule.DISCARDS:
            self._forgive_discarded(wrong)
        if self._rule is Rule.SHORN and self._is_shorn(wrong, [*writes, *self._waiting]):
            return None
        return _first(wrong)

    @property
    def _is_accounted(self) -> bool:
        """Whether it is known which writes had been submitted; protected disks and systems are judged by the log."""
        return self._log.account is not None and self._rule in (Rule.WHOLE, Rule.TORN, Rule.SHORN, Rule.DISCARDS)

    def _newest_first(self) -> list[int]:
        """Return what may be on the medium, last completed first; if completions are unknown, FUA writes first."""
        entries = [*self._unflushed, *self._waiting]
        if self._is_accounted and self._log.account:
            when = self._log.account.completed
            # A DISCARD has no event; its place in the log is after the ordinary writes that completed before it.
            last, keys = NONE, {}
            for entry in self._unflushed:
                last = max(last, int(when[entry]))
                keys[entry] = last
            entries.sort(key=lambda entry: keys.get(entry, int(when[entry])))
        return entries[::-1]

    @cached_property
    def _submitted_writes(self) -> Int64Array:
        """Return the writes that had been submitted by the cut without being durable at the start of its epoch."""
        assert self._log.account
        submitted = self._log.account.submitted[self._cut.begin :]
        entries: Int64Array = self._cut.begin + np.flatnonzero((submitted != NONE) & (submitted < self._cut.moment))
        return entries[self._log.payload_bytes[entries] > 0]

    def _not_flushed(self) -> list[int]:
        """Return the ordinary writes and DISCARDs that may be on the medium, in order."""
        late = self._logged_late()
        if self._is_accounted:
            plain = self._submitted_writes[(self._log.flags[self._submitted_writes] & _FUA) == 0]
            late = np.union1d(plain, late[self._log.payload_bytes[late] == 0])
        entries: list[int] = late.tolist()
        return entries

    def _logged_late(self) -> Int64Array:
        """Return the ordinary writes and DISCARDs that may be on the medium as far as the log alone tells."""
        cut = self._cut
        if self._is_sure and (cut.instant < cut.end or self._rule is Rule.DURABLE):
            return np.zeros(0, dtype=np.int64)
        end = cut.end if self._is_sure else cut.after
        entries: Int64Array = cut.begin + np.flatnonzero((self._log.flags[cut.begin : end] & _AT_ONCE) == 0)
        return entries

    def _in_flight(self) -> list[int]:
        """Return the FUA writes that may be on the medium without being durable."""
        cut, fuas = self._cut, self._order.fuas
        if self._is_accounted:
            entries: list[int] = self._submitted_writes[
                (self._submitted_writes >= cut.instant) & np.isin(self._submitted_writes, fuas)
            ].tolist()
            return entries
        if self._is_sure:
            return [cut.instant] if cut.instant in fuas and self._rule is not Rule.DURABLE else []
        return [fua for fua in fuas.tolist() if cut.instant <= fua < cut.after]

    def _alike(self, entry: int) -> Mask:
        """Return which sectors of a write hold its bytes."""
        place = bytes_of(self._order.sectors(entry))
        return rows_alike(self._content[place], np.frombuffer(self._log.payload(entry), dtype=np.uint8))

    def _fits(self, entry: int) -> Mask:
        """Return which sectors of an ordinary write fit the content if it is the newest write that landed."""
        fits, place = self._alike(entry), self._order.sectors(entry)
        for sector in self._order.mixed_sectors(place):
            rank = sector - place.start
            for fua in self._open_fuas(entry, sector):
                same = self._order.data(fua, sector) == self._sector(sector)
                fits[rank] = (fits[rank] and same) if self._is_sure else (fits[rank] or same)
        return fits

    def _open_fuas(self, entry: int, sector: int) -> Iterator[int]:
        """Yield the FUA writes of a sector that may have come after an ordinary write and may be on the medium."""
        fua = int(self._order.last_fua(np.array([sector]), self._cut.instant)[0])
        is_flying = not self._is_sure and fua in self._order.rivals(entry) and self._is_flying(entry)
        if is_flying or self._order.is_open(entry, fua, sector):
            yield fua
        # Under the other rules the FUA writes that landed have already covered their sectors.
        if not self._is_sure and self._rule in (Rule.ORDERED, Rule.SEEN):
            yield from (write for write in self._waiting if _holds(self._order.sectors(write), sector))

    def _land(self, entry: int, fits: Mask, covered: Mask, excused: Mask) -> None:
        """Let a write land where no uncovered sector contradicts it; if writes tear, each unit by itself."""
        place = self._order.sectors(entry)
        fits, hides = self._against_rivals(entry, fits, covered[place] | excused[place])
        fine = fits | hides
        for part in self._units(place):
            inside = slice(part.start - place.start, part.stop - place.start)
            if fine[inside].all():
                newly = fits[inside] & ~covered[part]
                self._newest[part][newly] = entry
                covered[part] |= newly

    def _against_rivals(self, entry: int, fits: Mask, hides: Mask) -> tuple[Mask, Mask]:
        """Weigh the writes of the same place that may have come before or after this one, whatever the log says.

        Surely, such a write neither hides this one nor is hidden by it. Possibly, it shows where this one landed.
        """
        place, fits, hides = self._order.sectors(entry), fits.copy(), hides.copy()
        for rival in self._order.rivals(entry):
            shared, is_open = self._order.shared_sectors(entry, rival)
            inside, alike = shared - place.start, self._alike(rival)[shared - self._order.sectors(rival).start]
            if rival > entry:
                # Where the end of the recording has shown the later one in the log on top, it hides this one.
                hides[inside] |= alike & ~is_open
            if not self._is_sure:
                hides[inside] |= alike & (is_open | self._is_flying(entry) | self._is_flying(rival))
            elif self._is_durable(rival):
                fits[inside] &= alike | ~is_open
            else:
                hides[inside] &= (self._newest[shared] != rival) | ~is_open
        return fits, hides

    def _is_flying(self, entry: int) -> bool:
        """Whether a write had not completed at the cut: the disk might have carried it out earlier or later."""
        assert self._log.account
        return bool(self._log.account.completed[entry] >= self._cut.moment)

    def _is_durable(self, entry: int) -> bool:
        is_fua = bool(self._log.flags[entry] & _FUA)
        return entry < self._cut.begin or (is_fua and entry < self._cut.instant)

    def _units(self, place: slice) -> Iterator[slice]:
        if self._rule not in (Rule.TORN, Rule.SHORN):
            yield place
            return
        size = self._unit_sectors
        for begin in range(place.start // size * size, place.stop, size):
            yield slice(max(begin, place.start), min(begin + size, place.stop))

    def _hiding_sectors(self, writes: Sequence[int]) -> Mask:
        """Return the sectors in which an ordinary write may hide a FUA write, because their order is unknown."""
        hidden = np.zeros(len(self._content) // SECTOR_BYTES, dtype=bool)
        for entry in writes:
            hidden[self._order.sectors(entry)] |= self._alike(entry)
        return hidden

    def _weigh_open_floor(self, wrong: Mask) -> None:
        """Judge again the sectors whose durable content the log does not tell."""
        order, cut = self._order, self._cut
        plains = order.last_plain(order.mixed, cut.begin)
        fuas = order.last_fua(order.mixed, cut.instant)
        near = (plains != NONE) & (fuas != NONE)
        for plain, fua, sector in zip(
            plains[near].tolist(), fuas[near].tolist(), order.mixed[near].tolist(), strict=True
        ):
            alike = [order.data(entry, sector) == self._sector(sector) for entry in order.newest(plain, fua, sector)]
            wrong[sector] = not (all(alike) if self._is_sure else any(alike))
        for sector, writers in order.open_floors(cut.begin, cut.instant):
            alike = [order.data(entry, sector) == self._sector(sector) for entry in writers]
            wrong[sector] = not (all(alike) if self._is_sure else any(alike))

    def _ordered_offender(self, wrong: Mask) -> int | None:
        """Return None if the first m writes explain the content for some m, else a sector that the best m misses."""
        writes = [entry for entry in self._unflushed if self._log.payload_bytes[entry]]
        all_only = self._rule is Rule.SEEN and self._is_sure
        offender, fewest = None, len(wrong) + 1
        ends = self._log.ends_write
        for fua_count in range(len(self._waiting) + 1):
            if fua_count and not ends[self._waiting[fua_count - 1]]:
                continue
            state = wrong.copy()
            for fua in self._waiting[:fua_count]:
                state[self._order.sectors(fua)] = ~self._alike(fua)
            left = int(np.count_nonzero(state))
            for rank in range(len(writes) + 1):
                if rank:
                    place = self._order.sectors(writes[rank - 1])
                    left -= int(np.count_nonzero(state[place]))
                    state[place] = ~self._fits(writes[rank - 1])
                    left += int(np.count_nonzero(state[place]))
                is_whole = not rank or ends[writes[rank - 1]]
                if left < fewest and is_whole and (rank == len(writes) or not all_only):
                    offender, fewest = _first(state), left
        return offender

    def _zero_sectors(self, discard: int, before: int) -> Mask:
        """Return which sectors of a DISCARD read zeros and may do so because of it."""
        place = self._order.sectors(discard)
        zeros = ~self._content[bytes_of(place)].reshape(-1, SECTOR_BYTES).any(axis=1)
        fuas = self._order.last_fua(np.arange(place.start, place.stop), before)
        # A FUA write of this epoch or the one before may have come before or after; a later one came after.
        reach = self._order.epoch_of[discard] - (2 if self._is_sure else 0)
        zeroed: Mask = zeros & ((fuas == NONE) | (self._order.epoch_of[fuas] <= reach))
        for entry in self._order.later_though_earlier(discard):
            other = self._order.sectors(entry)
            zeroed[max(0, other.start - place.start) : max(0, other.stop - place.start)] = False
        return zeroed

    def _forgive_discarded(self, wrong: Mask) -> None:
        """Clear the sectors that read zeros because of a durable DISCARD, if nothing durable has covered them since."""
        flags = self._log.flags[: self._cut.begin]
        for discard in np.flatnonzero(flags & EntryFlag.DISCARD).tolist():
            place = self._order.sectors(discard)
            if wrong[place].any():
                sectors = np.arange(place.start, place.stop)
                since = self._order.last_plain(sectors, self._cut.begin) < discard
                wrong[place] &= ~(since & self._zero_sectors(discard, self._cut.instant))

    def _is_shorn(self, wrong: Mask, writes: Sequence[int]) -> bool:
        """Whether all wrong sectors are the rest of one block of one write, after the write's first sector there."""
        sectors = np.flatnonzero(wrong)
        if not len(sectors):
            return True
        block = int(sectors[0]) // _BLOCK_SECTORS * _BLOCK_SECTORS
        for rank, entry in enumerate(writes):
            place = self._order.sectors(entry)
            head, end = max(place.start, block), min(place.stop, block + _BLOCK_SECTORS)
            if head < sectors[0] and sectors[-1] < end and not (self._is_sure and self._may_be_covered(entry, sectors)):
                # The write's first sector in this block must hold what it or a later write put there.
                wrote = [write for write in writes[rank:] if _holds(self._order.sectors(write), head)]
                if any(self._order.data(write, head) == self._sector(head) for write in wrote):
                    return True
        return False

    def _may_be_covered(self, entry: int, sectors: Int64Array) -> bool:
        """Whether a durable FUA write of one of these sectors may have come after an ordinary write."""
        fuas = self._order.last_fua(sectors, self._cut.instant).tolist()
        pairs = zip(fuas, sectors.tolist(), strict=True)
        return entry not in self._waiting and any(self._order.is_open(entry, fua, sector) for fua, sector in pairs)

    def _sector(self, sector: int) -> bytes:
        return bytes(self._content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])


def bytes_of(sectors: slice) -> slice:
    """Return the bytes of a range of sectors."""
    return slice(sectors.start * SECTOR_BYTES, sectors.stop * SECTOR_BYTES)


def _holds(sectors: slice, sector: int) -> bool:
    return bool(sectors.start <= sector < sectors.stop)


def _first(wrong: Mask) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def rows_alike(one: ByteArray, other: ByteArray) -> Mask:
    """Return which sectors of two contents are equal."""
    alike: Mask = (one.reshape(-1, SECTOR_BYTES) == other.reshape(-1, SECTOR_BYTES)).all(axis=1)
    return alike
