"""Whether an honest disk could hold exactly this content after a power cut at that instant; an independent checker.

The generators of crash states choose entries of the log and apply them. This module goes the other way: it takes a
whole disk, asks for each sector of 512 bytes which write can have left its content, and whether one story (one choice
of writes that landed) explains all sectors. The log reader is all that it shares with the generators. What is legal
follows from the log alone:

An instant is a position in the log: everything before that entry was logged, the entry itself was not. Let FLUSH k be
the last before the instant, and n the first FLUSH at or after it (or the end of the log).
- Durable: all ordinary writes before k, because k took them, and all FUA writes before the instant.
- Possibly on the medium: the ordinary writes between k and n, once they have surely completed. That is sure if the
  instant is n (or only such writes lie between the instant and n), because n was submitted after the last of them. Also
  a FUA write at the instant itself, because only its completion is missing.
- Possibly not even submitted, so unknown: FUA writes after the instant up to the FLUSH after n; the ordinary writes
  between k and n at any earlier instant; those after n, which may have completed while n was in flight.
Where there is an account of submissions (`faults.submissions`), the two are known instead: possibly on the medium is
every write that had been submitted before the next FUA write or FLUSH after the instant completed, and no other.
- Where `faults.order` says so, it is open whether an ordinary write or a FUA write of one sector came last.

The rules say which choices among the writes possibly on the medium make a story:
- whole (power cut): any subset; each lands whole or not at all; a later one hides an earlier one.
- torn: the same for each unit of 512 or of 4096 bytes, aligned on the device.
- shorn: as torn; in addition, in one block of 4096 bytes of one write, everything after the write's first sector there
  may be anything, unless a durable FUA write of the place came later.
- ordered (protected disk): the first m of them, whole, for some m.
- durable (a disk that died earlier than the claimed instant, see `faults.jointlegality`): none of them.
- seen (crash of the operating system): all of them at n. Or all FUA writes of the epoch and the first m ordinary ones,
  if no mark lies between the last FUA write of the epoch and the instant: which later marks had been written is
  unknown.
- discards: as whole; in addition, any sector of a DISCARD that is durable or possibly on the medium may read zeros
  instead of what was there when it completed, until a write that landed covers it.

There are three answers. Legal: a story exists that uses only sure things, whatever the open orders are. Illegal: none
exists, even if every doubt is resolved in favour. Undecided: between the two; a state that is claimed to be legal must
not be undecided. Where several writes hold the same bytes, one story that fits is enough. The search is exact, not a
sample: it walks the writes from the newest to the oldest, and one lands if all its sectors that no newer one covers
hold its bytes. The writes that land in this way cover at least what any other story covers. The remaining sectors must
hold what was there before; if they do not, no story fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rig.faults.log import SECTOR_BYTES, ByteArray, EntryFlag, Int64Array, WriteLog
from rig.faults.order import NONE, Order

_Mask = NDArray[np.bool_]
_BLOCK_SECTORS = 4096 // SECTOR_BYTES
# Two devices are compared in parts of this size, which fit the processor's cache.
_CHUNK_BYTES = 1 << 20
# After all events.
_NO_MOMENT = np.iinfo(np.int64).max


class Legality(StrEnum):
    """The three answers about a content."""

    LEGAL = "legal"
    ILLEGAL = "illegal"
    UNDECIDED = "undecided"


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
class Answer:
    """The checker's answer; unless legal, with the first offending sector and the reason."""

    legality: Legality
    offset_bytes: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if self.legality is Legality.LEGAL:
            return "legal"
        sector = self.offset_bytes // SECTOR_BYTES
        return f"{self.legality}: sector {sector} (byte {self.offset_bytes}): {self.reason}"


class Checker:
    """Judges contents of one log's device. Ascending instants are cheap: what is durable is replayed once."""

    def __init__(self, log: WriteLog, device_bytes: int, *, is_replay: bool = True) -> None:
        """Read the order of all writes; `is_replay`: a replay of every entry is known to equal the final device."""
        self._log = log
        self._order = Order(log, is_replay=is_replay)
        self._floor: ByteArray = np.zeros(device_bytes, dtype=np.uint8)
        self._floor_at = 0

    def check(self, content: ByteArray, instant: int, rule: Rule, *, unit_bytes: int = SECTOR_BYTES) -> Answer:
        """Say whether a cut just before entry `instant` can leave this content; `unit_bytes` is for torn writes."""
        if len(content) != len(self._floor):
            raise ValueError(f"the content has {len(content)} bytes, but the device has {len(self._floor)}")
        if not 0 <= instant <= self._log.entry_count:
            raise ValueError(f"entry {instant} is not in this log, which has {self._log.entry_count} entries")
        cut = self._cut(instant)
        self._move_floor(cut.begin)
        story = _Story(self._log, self._order, cut, rule, unit_bytes)
        with_fuas = self._order.fuas[(self._order.fuas >= cut.begin) & (self._order.fuas < cut.instant)].tolist()
        floor = self._floor
        if rule is Rule.SEEN and instant < cut.end and not self._has_mark_after_fuas(cut, instant):
            # It answers for no mark after the last FUA write, so any instant after that one will do.
            cut = self._cut(cut.end)
            story = _Story(self._log, self._order, cut, Rule.ORDERED, unit_bytes)
            with_fuas = [fua for fua in self._order.fuas.tolist() if cut.begin <= fua < cut.end]
        kept = [floor[_bytes(self._order.sectors(fua))].copy() for fua in with_fuas]
        for fua in with_fuas:
            floor[_bytes(self._order.sectors(fua))] = np.frombuffer(self._log.payload(fua), dtype=np.uint8)
        try:
            wrong = _differing(content, floor)
            sure = story.offender(content, wrong.copy(), is_sure=True)
            if sure is None:
                return Answer(Legality.LEGAL)
            possible = story.offender(content, wrong, is_sure=False)
            sector = sure if possible is None else possible
            legality = Legality.UNDECIDED if possible is None else Legality.ILLEGAL
            return Answer(legality, sector * SECTOR_BYTES, self._reason(content, sector, cut))
        finally:
            for fua, data in zip(reversed(with_fuas), reversed(kept), strict=True):
                floor[_bytes(self._order.sectors(fua))] = data

    def _cut(self, instant: int) -> _Cut:
        flushes, log = self._order.flushes, self._log
        rank = int(np.searchsorted(flushes, instant))
        ends = [*flushes.tolist(), log.entry_count, log.entry_count]
        begin, end, after = (0 if rank == 0 else ends[rank - 1] + 1), ends[rank], ends[rank + 1]
        claimed = instant
        at_once = (log.flags[instant:end] & (EntryFlag.FUA | EntryFlag.MARK)) > 0
        # The target writes its own mark after the last writes when it is removed.
        if end == log.entry_count and len(at_once):
            at_once[-1] &= not log.flags[-1] & EntryFlag.MARK
        return _Cut(begin, end, after, instant if at_once.any() else end, self._moment(claimed))

    def _moment(self, instant: int) -> int:
        """Return the event before which the power went: the next completion that the log has at once, or the last."""
        flags = self._log.flags[instant:]
        at_once = np.flatnonzero(flags & (EntryFlag.FUA | EntryFlag.FLUSH))
        if self._log.account is None or not len(at_once):
            return _NO_MOMENT
        return int(self._log.account.completed[instant + int(at_once[0])])

    def _has_mark_after_fuas(self, cut: _Cut, instant: int) -> bool:
        fuas = self._order.fuas[(self._order.fuas >= cut.begin) & (self._order.fuas < cut.end)]
        begin = int(fuas[-1]) if len(fuas) else cut.begin
        return bool((self._log.flags[begin:instant] & EntryFlag.MARK).any())

    def _move_floor(self, to: int) -> None:
        """Replay what is durable at the start of an epoch; start from zeros again if that lies before the last one."""
        if to < self._floor_at:
            self._floor[:] = 0
            self._floor_at = 0
        sizes = self._log.payload_bytes[self._floor_at : to]
        for entry in (self._floor_at + np.flatnonzero(sizes)).tolist():
            data = np.frombuffer(self._log.payload(entry), dtype=np.uint8)
            place = _bytes(self._order.sectors(entry))
            if place.stop > len(self._floor):
                raise self._log.error(entry, f"writes up to byte {place.stop} of {len(self._floor)}")
            self._floor[place] = data
        self._floor_at = to

    def _reason(self, content: ByteArray, sector: int, cut: _Cut) -> str:
        """Say what a sector holds and what was durable there."""
        data = bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
        begins, sizes = self._log.offset_bytes, self._log.payload_bytes
        writers = np.flatnonzero((begins <= sector * SECTOR_BYTES) & (begins + sizes > sector * SECTOR_BYTES)).tolist()
        alike = [entry for entry in writers if self._order.data(entry, sector) == data]
        holds = f"holds what entry {alike[-1]} wrote" if alike else "holds what no write of the log holds"
        if not alike and not any(data):
            holds = "holds zeros"
        durable = [entry for entry in writers if self._is_durable(entry, cut)]
        was = f"entry {durable[-1]} was durable there" if durable else "nothing was durable there"
        return f"{holds}; at entry {cut.instant} {was}, and no choice of the writes in reach explains the content"

    def _is_durable(self, entry: int, cut: _Cut) -> bool:
        return entry < cut.begin or (entry < cut.instant and bool(self._log.flags[entry] & EntryFlag.FUA))


@dataclass(frozen=True)
class _Cut:
    """An instant: its epoch is the entries from `begin` up to the FLUSH at `end`; `after` is the next FLUSH.

    `moment` is the instant as an event of the account of submissions.
    """

    begin: int
    end: int
    after: int
    instant: int
    moment: int


class _Story:
    """The search for a choice of writes that explains a content at one instant under one rule."""

    def __init__(self, log: WriteLog, order: Order, cut: _Cut, rule: Rule, unit_bytes: int) -> None:
        self._log = log
        self._order = order
        self._cut = cut
        self._rule = rule
        self._unit_sectors = unit_bytes // SECTOR_BYTES

    def offender(self, content: ByteArray, wrong: _Mask, *, is_sure: bool) -> int | None:
        """Return the first sector that no choice explains, or None; `wrong` marks sectors that differ from durable."""
        self._content, self._is_sure = content, is_sure
        self._waiting = self._in_flight()
        self._weigh_open_floor(wrong)
        if self._rule in (Rule.ORDERED, Rule.SEEN):
            return self._ordered_offender(wrong)
        covered = np.zeros(len(wrong), dtype=bool)
        writes = [entry for entry in self._unflushed() if self._log.payload_bytes[entry]]
        is_known = is_sure or self._is_accounted
        hidden = covered if is_known else self._hidden(writes)
        for entry in self._newest_first():
            if entry in self._waiting:
                self._land(entry, self._alike(entry), covered, hidden)
            elif self._log.payload_bytes[entry]:
                self._land(entry, self._fits(entry), covered, covered)
            elif self._rule is Rule.DISCARDS:
                place = self._order.sectors(entry)
                covered[place] |= self._zeroed(entry, self._cut.instant)
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
        """Return what may be on the medium, the last to complete first; unless that is known, FUA writes first."""
        found = [*self._unflushed(), *self._waiting]
        if self._is_accounted and self._log.account:
            when = self._log.account.completed
            # A DISCARD has no event; its place in the log is after the ordinary writes that completed before it.
            last, keys = NONE, {}
            for entry in self._unflushed():
                last = max(last, int(when[entry]))
                keys[entry] = last
            found.sort(key=lambda entry: keys.get(entry, int(when[entry])))
        return found[::-1]

    def _submitted(self) -> Int64Array:
        """Return the writes that had been submitted by the cut without being durable at the start of its epoch."""
        assert self._log.account
        submitted = self._log.account.submitted[self._cut.begin :]
        found: Int64Array = self._cut.begin + np.flatnonzero((submitted != NONE) & (submitted < self._cut.moment))
        return found[self._log.payload_bytes[found] > 0]

    def _unflushed(self) -> list[int]:
        """Return the ordinary writes and DISCARDs that may be on the medium, in order."""
        if self._is_accounted:
            plain = [entry for entry in self._submitted().tolist() if not self._log.flags[entry] & EntryFlag.FUA]
            return sorted({*plain, *(one for one in self._logged_late() if not self._log.payload_bytes[one])})
        return self._logged_late()

    def _logged_late(self) -> list[int]:
        """Return the ordinary writes and DISCARDs that may be on the medium as far as the log alone tells."""
        cut = self._cut
        if self._is_sure and (cut.instant < cut.end or self._rule is Rule.DURABLE):
            return []
        end = cut.end if self._is_sure else cut.after
        flags = self._log.flags[cut.begin : end]
        at_once = (flags & (EntryFlag.FUA | EntryFlag.MARK | EntryFlag.FLUSH)) > 0
        found: list[int] = (cut.begin + np.flatnonzero(~at_once)).tolist()
        return found

    def _in_flight(self) -> list[int]:
        """Return the FUA writes that may be on the medium without being durable."""
        cut, fuas = self._cut, self._order.fuas
        if self._is_accounted:
            return [fua for fua in self._submitted().tolist() if fua in fuas and fua >= cut.instant]
        if self._is_sure:
            return [cut.instant] if cut.instant in fuas and self._rule is not Rule.DURABLE else []
        return [fua for fua in fuas.tolist() if cut.instant <= fua < cut.after]

    def _alike(self, entry: int) -> _Mask:
        """Return which sectors of a write hold its bytes."""
        place = _bytes(self._order.sectors(entry))
        return _rows_alike(self._content[place], np.frombuffer(self._log.payload(entry), dtype=np.uint8))

    def _fits(self, entry: int) -> _Mask:
        """Return which sectors of an ordinary write fit the content if it is the newest write that landed."""
        fits, place = self._alike(entry), self._order.sectors(entry)
        for sector in self._order.mixed_in(place):
            rank = sector - place.start
            for fua in self._open_fuas(entry, sector):
                same = self._order.data(fua, sector) == self._sector(sector)
                fits[rank] = (fits[rank] and same) if self._is_sure else (fits[rank] or same)
        return fits

    def _open_fuas(self, entry: int, sector: int) -> Iterator[int]:
        """Yield the FUA writes of a sector that may have come after an ordinary write and may be on the medium."""
        fua = int(self._order.last_fua(np.array([sector]), self._cut.instant)[0])
        if self._order.is_open(entry, fua):
            yield fua
        # Under the other rules the FUA writes that landed have already covered their sectors.
        if not self._is_sure and self._rule in (Rule.ORDERED, Rule.SEEN):
            yield from (one for one in self._waiting if _holds(self._order.sectors(one), sector))

    def _land(self, entry: int, fits: _Mask, covered: _Mask, excused: _Mask) -> None:
        """Let a write land where no uncovered sector contradicts it; if writes tear, each unit by itself."""
        place = self._order.sectors(entry)
        fine = fits | covered[place] | excused[place]
        for part in self._units(place):
            inside = slice(part.start - place.start, part.stop - place.start)
            if fine[inside].all():
                covered[part] |= fits[inside]

    def _units(self, place: slice) -> Iterator[slice]:
        if self._rule not in (Rule.TORN, Rule.SHORN):
            yield place
            return
        size = self._unit_sectors
        for begin in range(place.start // size * size, place.stop, size):
            yield slice(max(begin, place.start), min(begin + size, place.stop))

    def _hidden(self, writes: Sequence[int]) -> _Mask:
        """Return the sectors in which an ordinary write may hide a FUA write, because their order is unknown."""
        hidden = np.zeros(len(self._content) // SECTOR_BYTES, dtype=bool)
        for entry in writes:
            hidden[self._order.sectors(entry)] |= self._alike(entry)
        return hidden

    def _weigh_open_floor(self, wrong: _Mask) -> None:
        """Judge again the sectors whose durable content the log does not tell."""
        order, cut = self._order, self._cut
        plains = order.last_plain(order.mixed, cut.begin)
        fuas = order.last_fua(order.mixed, cut.instant)
        near = (plains != NONE) & (fuas != NONE)
        near[near] = order.epoch_of[fuas[near]] >= order.epoch_of[plains[near]] - 1
        for plain, fua, sector in zip(
            plains[near].tolist(), fuas[near].tolist(), order.mixed[near].tolist(), strict=True
        ):
            alike = [order.data(entry, sector) == self._sector(sector) for entry in order.newest(plain, fua)]
            wrong[sector] = not (all(alike) if self._is_sure else any(alike))

    def _ordered_offender(self, wrong: _Mask) -> int | None:
        """Return None if the first m writes explain the content for some m, else a sector that the best m misses."""
        writes = [entry for entry in self._unflushed() if self._log.payload_bytes[entry]]
        all_only = self._rule is Rule.SEEN and self._is_sure
        offender, fewest = None, len(wrong) + 1
        for fua_count in range(len(self._waiting) + 1):
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
                if left < fewest and (rank == len(writes) or not all_only):
                    offender, fewest = _first(state), left
        return offender

    def _zeroed(self, discard: int, before: int) -> _Mask:
        """Return which sectors of a DISCARD read zeros and may do so because of it."""
        place = self._order.sectors(discard)
        zeros = ~self._content[_bytes(place)].reshape(-1, SECTOR_BYTES).any(axis=1)
        fuas = self._order.last_fua(np.arange(place.start, place.stop), before)
        # A FUA write of this epoch or the one before may have come before or after; a later one came after.
        reach = self._order.epoch_of[discard] - (2 if self._is_sure else 0)
        found: _Mask = zeros & ((fuas == NONE) | (self._order.epoch_of[fuas] <= reach))
        return found

    def _forgive_discarded(self, wrong: _Mask) -> None:
        """Clear the sectors that read zeros because of a durable DISCARD, if nothing durable has covered them since."""
        flags = self._log.flags[: self._cut.begin]
        for discard in np.flatnonzero(flags & EntryFlag.DISCARD).tolist():
            place = self._order.sectors(discard)
            if wrong[place].any():
                sectors = np.arange(place.start, place.stop)
                since = self._order.last_plain(sectors, self._cut.begin) < discard
                wrong[place] &= ~(since & self._zeroed(discard, self._cut.instant))

    def _is_shorn(self, wrong: _Mask, writes: Sequence[int]) -> bool:
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
                wrote = [one for one in writes[rank:] if _holds(self._order.sectors(one), head)]
                if any(self._order.data(one, head) == self._sector(head) for one in wrote):
                    return True
        return False

    def _may_be_covered(self, entry: int, sectors: Int64Array) -> bool:
        """Whether a durable FUA write of one of these sectors may have come after an ordinary write."""
        fuas = self._order.last_fua(sectors, self._cut.instant).tolist()
        return entry not in self._waiting and any(self._order.is_open(entry, fua) for fua in fuas)

    def _sector(self, sector: int) -> bytes:
        return bytes(self._content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])


def _bytes(sectors: slice) -> slice:
    return slice(sectors.start * SECTOR_BYTES, sectors.stop * SECTOR_BYTES)


def _holds(sectors: slice, sector: int) -> bool:
    return bool(sectors.start <= sector < sectors.stop)


def _first(wrong: _Mask) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _rows_alike(one: ByteArray, other: ByteArray) -> _Mask:
    alike: _Mask = (one.reshape(-1, SECTOR_BYTES) == other.reshape(-1, SECTOR_BYTES)).all(axis=1)
    return alike


def _differing(one: ByteArray, other: ByteArray) -> _Mask:
    """Return which sectors of two devices differ."""
    wrong = np.zeros(len(one) // SECTOR_BYTES, dtype=bool)
    for begin in range(0, len(one), _CHUNK_BYTES):
        part = slice(begin, begin + _CHUNK_BYTES)
        if not np.array_equal(one[part], other[part]):
            sectors = slice(begin // SECTOR_BYTES, (begin + _CHUNK_BYTES) // SECTOR_BYTES)
            wrong[sectors] = ~_rows_alike(one[part], other[part])
    return wrong
