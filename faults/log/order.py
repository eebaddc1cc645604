"""Which of two writes to one sector came last, as far as a write log tells.

A sector is 512 bytes of the device, the smallest sector size. The log holds ordinary writes (and DISCARDs) in order of
completion, and FUA writes too. Between the two kinds the order is known only in part, because a FUA write is logged
when it completes, but an ordinary write when the next FLUSH after it completes. With one FLUSH in flight at a time, an
ordinary write of epoch E completed after the FLUSH before E was submitted, and before the FLUSH that closes E was
submitted. So a FUA write of epoch E+1 or later came after it, and a FUA write of E-2 or earlier came before it. The
order to a FUA write of E-1 or E is open. An account of submissions tells more, with any number of FLUSHes in flight.

`is_replay` says that the device at the end of the recording is known to equal a replay of all entries in log order.
Then an ordinary write that is the last one to a sector in the log, and differs there from the last FUA write, came
after that FUA write, and so after all earlier FUA writes. So did every ordinary write after it in the log.
"""

from __future__ import annotations

import numpy as np

from rig.faults.log.account import NEVER
from rig.faults.log.arrays import Int64Array
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog

# No entry; sorts before every one.
NONE = -1


class Order:
    """The writers of every sector of a log, and what is known about their order."""

    def __init__(self, log: WriteLog, *, is_replay: bool) -> None:
        self._log = log
        is_write = log.payload_bytes > 0
        is_fua = is_write & ((log.flags & EntryFlag.FUA) > 0)
        self.plain = np.flatnonzero(is_write & ~is_fua)
        self.fuas = np.flatnonzero(is_fua)
        self.flushes = np.flatnonzero(log.flags & EntryFlag.FLUSH)
        is_flush = (log.flags & EntryFlag.FLUSH) > 0
        self.epoch_of: Int64Array = np.cumsum(is_flush) - is_flush
        self._plain_keys = self._keys(self.plain)
        self._fua_keys = self._keys(self.fuas)
        # The sectors whose order of writers can be open.
        self.mixed = np.intersect1d(self._plain_keys // self._stride, self._fua_keys // self._stride)
        # For every entry, the last FUA write proven to be older than an ordinary write at this place.
        self._proven = np.full(log.entry_count, NONE, dtype=np.int64)
        if is_replay:
            self._prove()

    def data(self, entry: int, sector: int) -> bytes:
        """Return what a write holds for one of its sectors; zeros for no entry."""
        if entry == NONE:
            return bytes(SECTOR_BYTES)
        begin = sector * SECTOR_BYTES - int(self._log.offset_bytes[entry])
        return bytes(self._log.payload(entry)[begin : begin + SECTOR_BYTES])

    def sectors(self, entry: int) -> slice:
        """Return the sectors that an entry covers."""
        begin = int(self._log.offset_bytes[entry]) // SECTOR_BYTES
        return slice(begin, begin + int(self._log.length_bytes[entry]) // SECTOR_BYTES)

    def last_plain(self, sectors: Int64Array, before: int) -> Int64Array:
        """Return the last ordinary write of each sector before an entry, or NONE."""
        return self._last(self._plain_keys, sectors, before)

    def last_fua(self, sectors: Int64Array, before: int) -> Int64Array:
        """Return the last FUA write of each sector before an entry, or NONE."""
        return self._last(self._fua_keys, sectors, before)

    def is_open(self, plain: int, fua: int) -> bool:
        """Whether an ordinary write, or a DISCARD, and a FUA write may have completed in either order."""
        if NONE in (plain, fua) or fua <= self._proven[plain]:
            return False
        account = self._log.account
        if account and account.completed[fua] < account.submitted[plain] != NEVER:
            return False
        return self._in_reach(plain, fua)

    def newest(self, plain: int, fua: int) -> tuple[int, ...]:
        """Return which of two writes to one sector may be the later one: one of them, or both."""
        if self.is_open(plain, fua):
            return plain, fua
        if plain == NONE or (fua != NONE and self.epoch_of[fua] > self.epoch_of[plain]):
            return (fua,)
        return (plain,)

    def mixed_in(self, sectors: slice) -> list[int]:
        """Return the sectors of a range that have writers of both kinds."""
        begin, end = np.searchsorted(self.mixed, [sectors.start, sectors.stop])
        found: list[int] = self.mixed[begin:end].tolist()
        return found

    @property
    def _stride(self) -> int:
        return self._log.entry_count + 1

    def _keys(self, entries: Int64Array) -> Int64Array:
        """Return (sector, entry) for every sector written, as one ascending key."""
        counts = self._log.payload_bytes[entries] // SECTOR_BYTES
        owner = np.repeat(np.arange(len(entries)), counts)
        rank = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        sectors = (self._log.offset_bytes[entries] // SECTOR_BYTES)[owner] + rank
        keys: Int64Array = np.sort(sectors * self._stride + entries[owner])
        return keys

    def _last(self, keys: Int64Array, sectors: Int64Array, before: int) -> Int64Array:
        if not len(keys):
            return np.full(len(sectors), NONE, dtype=np.int64)
        found = keys[np.maximum(np.searchsorted(keys, sectors * self._stride + before) - 1, 0)]
        hit = (found // self._stride == sectors) & (found % self._stride < before)
        last: Int64Array = np.where(hit, found % self._stride, NONE)
        return last

    def _in_reach(self, plain: int, fua: int) -> bool:
        """Whether the log does not tell the order of an ordinary write and a FUA write."""
        first = 0 if self._log.account else self.epoch_of[plain] - 1
        return bool(first <= self.epoch_of[fua] <= self.epoch_of[plain])

    def _prove(self) -> None:
        end = self._log.entry_count
        lasts = zip(self.last_plain(self.mixed, end), self.last_fua(self.mixed, end), self.mixed, strict=True)
        for plain, fua, sector in lasts:
            if (
                self._in_reach(plain, fua)
                and plain > fua
                and self.data(int(plain), int(sector)) != self.data(int(fua), int(sector))
            ):
                self._proven[plain] = max(fua, self._proven[plain])
        self._proven = np.maximum.accumulate(self._proven)
