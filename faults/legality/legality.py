"""Whether an honest disk could hold exactly this content after a power cut at that instant; an independent checker.

The generators of crash states choose entries of the log and apply them. This module goes the other way: it takes a
whole disk, asks for each sector of 512 bytes which write can have left its content, and asks whether one story (one
choice of writes that landed) explains all sectors. It shares only the log reader with the generators. What is legal
follows from the log alone:

An instant is a position in the log: everything before that entry was logged, the entry itself was not. Let FLUSH k be
the last before the instant, and n the first FLUSH at or after it (or the end of the log).
- Durable: all ordinary writes before k, because k took them, and all FUA writes before the instant.
- Possibly on the medium: the ordinary writes between k and n, once they have surely completed. That is sure if the
  instant is n (or only such writes lie between the instant and n), because n was submitted after the last of them. Also
  a FUA write at the instant itself, because only its completion is missing.
- Possibly not even submitted, so unknown: FUA writes after the instant up to the FLUSH after n; the ordinary writes
  between k and n at any earlier instant; those after n, which may have completed while n was in flight.
With an account of submissions (`rig.faults.log.submissions`), the last two sets are known instead: possibly on the
medium is every write that had been submitted before the next FUA write or FLUSH after the instant completed, and no
other.
- Where `rig.faults.log.order` says so, it is open which of two writes of one sector came last. The block layer keeps no
  order between requests in flight together, so neither surely hides the other.

The rules say which choices among the writes possibly on the medium make a story:
- whole (power cut): any subset; each lands whole or not at all; a later one hides an earlier one. In the log of a
  recording the parts of a write that the disk does not write atomically are writes of their own (`WriteLog.split`).
- torn: the same for each unit of 512 or of 4096 bytes, aligned on the device.
- shorn: as torn; in addition, in one block of 4096 bytes of one write, everything after the write's first sector there
  may be anything, unless a durable FUA write of the place came later.
- ordered (protected disk): the first m of them, whole, for some m; all parts of a write or none.
- durable (a disk that died earlier than the claimed instant, see `rig.faults.legality.jointlegality`): none of them.
- seen (crash of the operating system): all of them at n. Or all FUA writes of the epoch and the first m ordinary ones,
  if no mark lies between the last FUA write of the epoch and the instant: which later marks had been written is
  unknown.
- discards: as whole; in addition, any sector of a DISCARD that is durable or possibly on the medium may read zeros
  instead of what was there when it completed, until a write that landed covers it.

There are three answers. Legal: a story exists that uses only sure things, whatever the open orders are. Illegal: no
story exists, even if every doubt is resolved in favour. Undecided: between the two; a state that is claimed to be legal
must not be undecided. If several writes hold the same bytes, one story that fits is enough. The search is exact, not a
sample: it walks the writes from the newest to the oldest. A write lands if all its sectors that no newer landed write
covers hold its bytes. The writes that land in this way cover at least what any other story covers. The remaining
sectors must hold what was there before; if they do not, no story fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rig.faults.legality.story import Instant, Mask, Rule, Story, bytes_of, rows_alike
from rig.faults.log.arrays import ByteArray
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog
from rig.faults.log.order import Order

__all__ = ["Checker", "Legality", "Rule", "Ruling"]

# Two devices are compared in parts of this size, which fit the processor's cache.
_CHUNK_BYTES = 1 << 20
# After all events.
_NO_MOMENT = np.iinfo(np.int64).max


class Legality(StrEnum):
    """The three answers about a content."""

    LEGAL = "legal"
    ILLEGAL = "illegal"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Ruling:
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

    def check(self, content: ByteArray, instant: int, rule: Rule, *, unit_bytes: int = SECTOR_BYTES) -> Ruling:
        """Say whether a cut just before entry `instant` can leave this content; `unit_bytes` is for torn writes."""
        if len(content) != len(self._floor):
            raise ValueError(f"the content has {len(content)} bytes, but the device has {len(self._floor)}")
        if not 0 <= instant <= self._log.entry_count:
            raise ValueError(f"entry {instant} is not in this log, which has {self._log.entry_count} entries")
        cut = self._instant(instant)
        self._move_floor(cut.begin)
        story = Story(self._log, self._order, cut, rule, unit_bytes)
        with_fuas = self._order.fuas[(self._order.fuas >= cut.begin) & (self._order.fuas < cut.instant)].tolist()
        floor = self._floor
        if rule is Rule.SEEN and instant < cut.end and not self._has_mark_after_fuas(cut, instant):
            # The content answers for no mark after the last FUA write, so any instant after that write will do.
            cut = self._instant(cut.end)
            story = Story(self._log, self._order, cut, Rule.ORDERED, unit_bytes)
            with_fuas = [fua for fua in self._order.fuas.tolist() if cut.begin <= fua < cut.end]
        kept = [floor[bytes_of(self._order.sectors(fua))].copy() for fua in with_fuas]
        for fua in with_fuas:
            floor[bytes_of(self._order.sectors(fua))] = np.frombuffer(self._log.payload(fua), dtype=np.uint8)
        try:
            wrong = _differing(content, floor)
            sure = story.offender(content, wrong.copy(), is_sure=True)
            if sure is None:
                return Ruling(Legality.LEGAL)
            possible = story.offender(content, wrong, is_sure=False)
            sector = sure if possible is None else possible
            legality = Legality.UNDECIDED if possible is None else Legality.ILLEGAL
            return Ruling(legality, sector * SECTOR_BYTES, self._reason(content, sector, cut))
        finally:
            for fua, data in zip(reversed(with_fuas), reversed(kept), strict=True):
                floor[bytes_of(self._order.sectors(fua))] = data

    def _instant(self, instant: int) -> Instant:
        flushes, log = self._order.flushes, self._log
        rank = int(np.searchsorted(flushes, instant))
        ends = [*flushes.tolist(), log.entry_count, log.entry_count]
        begin, end, after = (0 if rank == 0 else ends[rank - 1] + 1), ends[rank], ends[rank + 1]
        claimed = instant
        at_once = (log.flags[instant:end] & (EntryFlag.FUA | EntryFlag.MARK)) > 0
        # The target writes its own mark after the last writes when it is removed.
        if end == log.entry_count and len(at_once):
            at_once[-1] &= not log.flags[-1] & EntryFlag.MARK
        return Instant(begin, end, after, instant if at_once.any() else end, self._moment(claimed))

    def _moment(self, instant: int) -> int:
        """Return the event before which the power went: the next completion that the log has at once, or the last."""
        flags = self._log.flags[instant:]
        at_once = np.flatnonzero(flags & (EntryFlag.FUA | EntryFlag.FLUSH))
        if self._log.account is None or not len(at_once):
            return _NO_MOMENT
        return int(self._log.account.completed[instant + int(at_once[0])])

    def _has_mark_after_fuas(self, cut: Instant, instant: int) -> bool:
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
            place = bytes_of(self._order.sectors(entry))
            if place.stop > len(self._floor):
                raise self._log.error(entry, f"writes up to byte {place.stop} of {len(self._floor)}")
            self._floor[place] = data
        self._floor_at = to

    def _reason(self, content: ByteArray, sector: int, cut: Instant) -> str:
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

    def _is_durable(self, entry: int, cut: Instant) -> bool:
        return entry < cut.begin or (entry < cut.instant and bool(self._log.flags[entry] & EntryFlag.FUA))


def _differing(one: ByteArray, other: ByteArray) -> Mask:
    """Return which sectors of two devices differ."""
    wrong = np.zeros(len(one) // SECTOR_BYTES, dtype=bool)
    for begin in range(0, len(one), _CHUNK_BYTES):
        part = slice(begin, begin + _CHUNK_BYTES)
        if not np.array_equal(one[part], other[part]):
            sectors = slice(begin // SECTOR_BYTES, (begin + _CHUNK_BYTES) // SECTOR_BYTES)
            wrong[sectors] = ~rows_alike(one[part], other[part])
    return wrong
