"""Digests of whole disk contents, at the price of what a crash state changes.

`ContentIndex(log).digest(state)` is equal for two states of one log iff the whole disk is equal in both. The digest
is the sum over all cells of 512 bytes (the smallest sector, so a tear never splits one) of a hash of (cell number,
data), where a cell of zeros counts 0: it starts as zeros, so writing zeros over nothing changes nothing. The hash is
blake2b, taken as two 64-bit lanes that are added modulo 2**64 each. A sum does not depend on order and can be changed
in place: take the old hash out, put the new one in. It is enough here because nobody chooses the data against it: two
different contents collide with a probability of about 2**-128. (A XOR would do as well against chance; a sum is not
linear over single bits, so related contents cannot cancel by parity.)
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from faults.epochs import Epoch, epochs
from faults.log import Int64Array, WriteLog
from faults.state import CrashState

CELL_BYTES = 512

_Lanes = NDArray[np.uint64]


@dataclass(frozen=True)
class _Start:
    """An epoch's start: the digest of the base, and for each cell that the epoch writes its place and old hash."""

    total: _Lanes
    cells: Int64Array
    old: _Lanes


class ContentIndex:
    """Hashes of all that a log writes, ready to digest its crash states. Hashes the whole log once, when built."""

    def __init__(self, log: WriteLog) -> None:
        self._log = log
        counts = log.payload_bytes // CELL_BYTES
        # Where the cells of each entry begin, in one row of all cells that were ever written.
        self._first = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(log.entry_count), counts)
        rank = np.arange(len(owner)) - self._first[owner]
        self._cell = log.offset_bytes[owner] // CELL_BYTES + rank
        self._hash = _hash_cells(log, self._cell)
        self._starts = {epoch.begin: start for epoch, start in self._walk()}

    def digest(self, state: CrashState) -> str:
        """Return the digest of the whole disk in this state: 32 hexadecimal digits."""
        pieces = state.pieces(self._log)
        start = self._starts[state.base_end]
        written = _spans(self._first[pieces[:, 0]] + pieces[:, 1] // CELL_BYTES, pieces[:, 2] // CELL_BYTES)
        place = np.searchsorted(start.cells, self._cell[written])
        winner = np.full(len(start.cells), -1, dtype=np.int64)
        # Of several values assigned to one index numpy keeps the last, so the last writer of a cell wins.
        winner[place] = written
        changed = np.flatnonzero(winner >= 0)
        total = start.total + (self._hash[winner[changed]] - start.old[changed]).sum(axis=0, dtype=np.uint64)
        return f"{int(total[0]):016x}{int(total[1]):016x}"

    def _walk(self) -> list[tuple[Epoch, _Start]]:
        known, place_of = np.unique(self._cell, return_inverse=True)
        current = np.zeros((len(known), 2), dtype=np.uint64)
        total = np.zeros(2, dtype=np.uint64)
        starts = []
        bounds = np.append(self._first, len(self._cell))
        for epoch in epochs(self._log):
            written = slice(int(bounds[epoch.begin]), int(bounds[epoch.end]))
            touched = np.unique(place_of[written])
            starts.append((epoch, _Start(total, known[touched], current[touched])))
            current[place_of[written]] = self._hash[written]
            total = total + (current[touched] - starts[-1][1].old).sum(axis=0, dtype=np.uint64)
        return starts


def _spans(begins: Int64Array, counts: Int64Array) -> Int64Array:
    """Return all numbers of the runs that begin at `begins` and have `counts` members, run after run."""
    spans: Int64Array = np.arange(int(counts.sum())) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return spans


def _hash_cells(log: WriteLog, cells: Int64Array) -> _Lanes:
    digests = []
    zeros, empty = bytes(CELL_BYTES), bytes(16)
    numbers = iter(cells.tolist())
    for entry in np.flatnonzero(log.payload_bytes).tolist():
        data = bytes(log.payload(entry))
        for begin in range(0, len(data), CELL_BYTES):
            cell, number = data[begin : begin + CELL_BYTES], next(numbers)
            salt = number.to_bytes(8, "little")
            digests.append(empty if cell == zeros else blake2b(cell, digest_size=16, salt=salt).digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64)
