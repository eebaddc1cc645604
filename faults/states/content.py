"""Digests of whole disk contents; a digest costs time in proportion to what the crash state changes.

`ContentIndex(log).digest(state)` is equal for two states of one log iff the whole disk is equal in both. The digest is
the sum over all sectors of 512 bytes (the smallest sector, so a tear never splits one) of a hash of (sector number,
data). A sector of zeros counts 0: the disk starts as zeros, so writing zeros to a fresh sector changes nothing. The
hash is blake2b, split into two 64-bit lanes, each added modulo 2**64. A sum does not depend on order and can be updated
in place: subtract the old hash, add the new one. It is strong enough because no adversary chooses the data: two
different contents collide with a probability of about 2**-128. (XOR would serve as well against chance; a sum is not
linear over single bits, so related contents cannot cancel by parity.)
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rig.faults.log.arrays import Int64Array
from rig.faults.log.epochs import epochs
from rig.faults.log.log import SECTOR_BYTES, WriteLog
from rig.faults.states.state import CrashState

_ZEROS = bytes(SECTOR_BYTES)
# Not the length of a sector, so no sector that can be read has this content.
_UNREADABLE = b"unreadable"

_Lanes = NDArray[np.uint64]


class ContentIndex:
    """Hashes of all that a log writes, ready to digest its crash states. Hashes the whole log once, when built."""

    def __init__(self, log: WriteLog) -> None:
        self._log = log
        counts = log.payload_bytes // SECTOR_BYTES
        # Where the sectors of each entry begin, in one row of all sectors that were ever written.
        self._first = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(log.entry_count), counts)
        rank = np.arange(len(owner)) - self._first[owner]
        sectors = log.offset_bytes[owner] // SECTOR_BYTES + rank
        self._hash = _hash_sectors(log, sectors)
        # The distinct sectors, ascending, and for each sector written its index among them.
        self._sectors, self._place = np.unique(sectors, return_inverse=True)
        # Every sector written, by sector and then in log order, as one ascending key.
        self._history = np.sort(self._place * len(sectors) + np.arange(len(sectors)))
        self._totals = dict(self._walk())

    def digest(self, state: CrashState) -> str:
        """Return the digest of the whole disk in this state: 32 hexadecimal digits."""
        pieces = state.pieces(self._log)
        written = _spans(self._first[pieces[:, 0]] + pieces[:, 1] // SECTOR_BYTES, pieces[:, 2] // SECTOR_BYTES)
        # In reverse order the first hit of each place is its last writer, which wins.
        places, newest = np.unique(self._place[written][::-1], return_index=True)
        new = self._hash[written[::-1][newest]]
        base_end = self._first_place(state.base_end)
        total = self._totals[state.base_end]
        total = total + (new - self._old(places, base_end)).sum(axis=0, dtype=np.uint64)
        for sector, data in _damaged_sectors(self._log, state).items():
            place = int(np.searchsorted(self._sectors, sector))
            old = np.zeros(2, dtype=np.uint64)
            if place < len(self._sectors) and self._sectors[place] == sector:
                rank = int(np.searchsorted(places, place))
                is_written = rank < len(places) and places[rank] == place
                old = new[rank] if is_written else self._old(np.array([place]), base_end)[0]
            total = total + (_hash_sector(sector, data) - old)
        return f"{int(total[0]):016x}{int(total[1]):016x}"

    def _first_place(self, entry: int) -> int:
        return int(self._first[entry]) if entry < len(self._first) else len(self._place)

    def _old(self, places: Int64Array, bound: int) -> _Lanes:
        """Return the hashes of sectors as the writes before `bound` left them; 0 for a sector without a write."""
        count = len(self._place)
        last = np.searchsorted(self._history, places * count + bound) - 1
        key = self._history[np.maximum(last, 0)] if count else last
        known = (last >= 0) & (key // max(count, 1) == places)
        old: _Lanes = np.where(known[:, None], self._hash[key % max(count, 1)] if count else 0, 0).astype(np.uint64)
        return old

    def _walk(self) -> Iterator[tuple[int, _Lanes]]:
        """Yield the digest of the base at the start of each epoch."""
        total = np.zeros(2, dtype=np.uint64)
        for epoch in epochs(self._log):
            yield epoch.begin, total
            begin, end = self._first_place(epoch.begin), self._first_place(epoch.end)
            places = np.unique(self._place[begin:end])
            total = total + (self._old(places, end) - self._old(places, begin)).sum(axis=0, dtype=np.uint64)


def _spans(begins: Int64Array, counts: Int64Array) -> Int64Array:
    """Return the numbers of all runs, one run after another; run i has `counts[i]` numbers from `begins[i]` on."""
    spans: Int64Array = np.arange(int(counts.sum())) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return spans


def _damaged_sectors(log: WriteLog, state: CrashState) -> dict[int, bytes]:
    """Return sector -> what the damages of a state leave in it; an unreadable sector counts as content of its own."""
    sectors: dict[int, bytes] = {}
    for extent in state.damage_extents(log):
        data, first = extent.data(log), extent.device_offset_bytes // SECTOR_BYTES
        for begin in range(0, len(data), SECTOR_BYTES):
            sectors[first + begin // SECTOR_BYTES] = data[begin : begin + SECTOR_BYTES]
    for offset_bytes, length_bytes in state.unreadable:
        for begin in range(offset_bytes, offset_bytes + length_bytes, SECTOR_BYTES):
            sectors[begin // SECTOR_BYTES] = _UNREADABLE
    return sectors


def _hash_sector(number: int, data: bytes) -> _Lanes:
    if data == _ZEROS:
        return np.zeros(2, dtype=np.uint64)
    digest = blake2b(data, digest_size=16, salt=number.to_bytes(8, "little")).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def _hash_sectors(log: WriteLog, sectors: Int64Array) -> _Lanes:
    digests = []
    empty = bytes(16)
    numbers = iter(sectors.tolist())
    for entry in np.flatnonzero(log.payload_bytes).tolist():
        data = bytes(log.payload(entry))
        for begin in range(0, len(data), SECTOR_BYTES):
            sector, number = data[begin : begin + SECTOR_BYTES], next(numbers)
            salt = number.to_bytes(8, "little")
            digests.append(empty if sector == _ZEROS else blake2b(sector, digest_size=16, salt=salt).digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64)
