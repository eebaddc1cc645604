"""Which of two writes to one sector came last, as far as a write log tells.

A sector is 512 bytes of the device, the smallest sector size. The log holds ordinary writes (and DISCARDs) in order of
completion, and FUA writes too. Between the two kinds the order is known only in part, because a FUA write is logged
when it completes, but an ordinary write when the next FLUSH after it completes. With one FLUSH in flight at a time, an
ordinary write of epoch E completed after the FLUSH before E was submitted, and before the FLUSH that closes E was
submitted. So a FUA write of epoch E+1 or later came after it, and a FUA write of E-2 or earlier came before it. The
order to a FUA write of E-1 or E is open. With an account of submissions, a write is later than another iff it was
submitted after the other had completed, with any number of FLUSHes in flight. The order of any two writes of one sector
that were in flight together is open, because a disk may carry them out in either order.

`is_replay` says that the device at the end of the recording is known to equal a replay of all entries in log order.
Then an ordinary write that is the last one to a sector in the log, and differs there from the last FUA write, came
after that FUA write, and so after all earlier FUA writes. So did every ordinary write after it in the log. Where an
account shows that two writes were in flight together, this holds only for the two writes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rig.faults.log.account import NEVER, Account
from rig.faults.log.arrays import BoolArray, Int64Array
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
        self._is_replay = is_replay
        self._rivals = _rivals(log, log.account) if log.account else {}
        if is_replay and not log.account:
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

    def is_open(self, plain: int, fua: int, sector: int) -> bool:
        """Whether an ordinary write, or a DISCARD, and a FUA write may have reached a sector in either order."""
        if NONE in (plain, fua) or fua <= self._proven[plain]:
            return False
        if self._log.account and self._log.account.submitted[plain] != NEVER:
            return fua in self.rivals(plain) and not self._is_shown(plain, fua, sector)
        return self._in_reach(plain, fua)

    def rivals(self, entry: int) -> Sequence[int]:
        """Return the writes that share a sector with this one and may have come before or after it."""
        return self._rivals.get(entry, ())

    def shared_sectors(self, one: int, other: int) -> tuple[Int64Array, BoolArray]:
        """Return the sectors that two rivals share, and for each whether it is open which of them came last."""
        places = self.sectors(one), self.sectors(other)
        shared = np.arange(max(place.start for place in places), min(place.stop for place in places))
        return shared, np.array([not self._is_shown(one, other, sector) for sector in shared.tolist()], dtype=bool)

    def open_floors(self, begin: int, instant: int) -> Iterator[tuple[int, list[int]]]:
        """Yield each sector whose durable content is open between rivals, with the writes that may show there.

        Durable are all writes before entry `begin`, and FUA writes before `instant`.
        """
        for later, rivals in self._rivals.items():
            is_durable = later < begin or (later < instant and bool(self._log.flags[later] & EntryFlag.FUA))
            shown: dict[int, list[int]] = {}
            for earlier in rivals:
                if earlier < later and is_durable:
                    shared, is_open = self.shared_sectors(earlier, later)
                    for sector in shared[is_open].tolist():
                        shown.setdefault(sector, [later]).append(earlier)
            for sector, writers in shown.items():
                at = np.array([sector])
                if max(self.last_plain(at, begin)[0], self.last_fua(at, instant)[0]) == later:
                    yield sector, writers

    def later_though_earlier(self, discard: int) -> list[int]:
        """Return the writes that the log has before a DISCARD and that completed after its FLUSH was submitted."""
        account, rank = self._log.account, int(np.searchsorted(self.flushes, discard))
        if account is None or rank == len(self.flushes):
            return []
        before = self.plain[self.plain < discard]
        late_writes: list[int] = before[account.completed[before] > account.submitted[self.flushes[rank]]].tolist()
        return late_writes

    def newest(self, plain: int, fua: int, sector: int) -> tuple[int, ...]:
        """Return which of two writes to one sector may be the later one: one of them, or both."""
        if self.is_open(plain, fua, sector):
            return plain, fua
        if plain == NONE or (fua != NONE and self.epoch_of[fua] > self.epoch_of[plain]):
            return (fua,)
        return (plain,)

    def mixed_sectors(self, sectors: slice) -> list[int]:
        """Return the sectors of a range that have writers of both kinds."""
        begin, end = np.searchsorted(self.mixed, [sectors.start, sectors.stop])
        entries: list[int] = self.mixed[begin:end].tolist()
        return entries

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
        newest = keys[np.maximum(np.searchsorted(keys, sectors * self._stride + before) - 1, 0)]
        hit = (newest // self._stride == sectors) & (newest % self._stride < before)
        last: Int64Array = np.where(hit, newest % self._stride, NONE)
        return last

    def _in_reach(self, plain: int, fua: int) -> bool:
        """Whether the log does not tell the order of an ordinary write and a FUA write."""
        return bool(self.epoch_of[plain] - 1 <= self.epoch_of[fua] <= self.epoch_of[plain])

    def _is_shown(self, one: int, other: int, sector: int) -> bool:
        """Whether the end of the recording shows that the later of two writes in the log came last."""
        at, end = np.array([sector]), self._log.entry_count
        is_last = max(self.last_plain(at, end)[0], self.last_fua(at, end)[0]) == max(one, other)
        return self._is_replay and bool(is_last) and self.data(one, sector) != self.data(other, sector)

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


def _rivals(log: WriteLog, account: Account) -> dict[int, list[int]]:
    """Return for each write the others in one of its sectors whose order the account does not tell.

    That are writes in flight together; and a FUA write that was submitted after a write which the log has behind it had
    completed.
    """
    rivals: dict[int, list[int]] = {}
    flying: list[int] = []
    entries = np.flatnonzero((log.payload_bytes > 0) & (account.submitted != NEVER))
    begins, ends = log.offset_bytes, log.offset_bytes + log.payload_bytes

    def meet(one: int, other: int) -> None:
        if begins[one] < ends[other] and begins[other] < ends[one]:
            rivals.setdefault(one, []).append(other)
            rivals.setdefault(other, []).append(one)

    for entry in entries[np.argsort(account.submitted[entries], kind="stable")].tolist():
        flying = [other for other in flying if account.completed[other] > account.submitted[entry]]
        for other in flying:
            meet(entry, other)
        flying.append(entry)
    is_fua = (log.flags & EntryFlag.FUA) > 0
    for fua in entries[is_fua[entries]].tolist():
        behind = entries[entries > fua]
        for entry in behind[~is_fua[behind] & (account.completed[behind] < account.submitted[fua])].tolist():
            meet(entry, fua)
    return rivals
