"""Extents: runs of bytes to put on a device, copied from the log's file or literal; and pieces, their compact form.

Pieces are rows of (entry index, bytes to skip in its payload, length in bytes). Extents and pieces apply in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rig.faults.log.arrays import BoolArray, Int64Array
from rig.faults.log.log import SECTOR_BYTES, WriteLog


@dataclass(frozen=True)
class Extent:
    """A run of bytes to put on the device; extents of a state are applied in order."""

    device_offset_bytes: int
    # Where the bytes are in the log's file; 0 for literal bytes.
    source_offset_bytes: int
    length_bytes: int
    # The bytes themselves, where no write of the log holds them.
    literal: bytes = b""

    def data(self, log: WriteLog) -> bytes:
        """Return what the extent puts on the device."""
        return self.literal or bytes(log.bytes_at(self.source_offset_bytes, self.length_bytes))


def literal_extent(device_offset_bytes: int, data: bytes) -> Extent:
    """Return the extent that puts these bytes on the device."""
    return Extent(device_offset_bytes, 0, len(data), data)


def whole_pieces(log: WriteLog, entries: Sequence[int]) -> Int64Array:
    """Return the pieces of whole writes."""
    rows = np.zeros((len(entries), 3), dtype=np.int64)
    rows[:, 0] = entries
    rows[:, 2] = log.payload_bytes[rows[:, 0]]
    return rows


def unit_pieces(log: WriteLog, entries: Sequence[int], unit_bytes: int) -> Int64Array:
    """Cut writes into their device-aligned units: one piece for each unit of each entry."""
    indices = np.array(entries, dtype=np.int64)
    begins = log.offset_bytes[indices]
    first_units = begins // unit_bytes
    counts = (begins + log.payload_bytes[indices] - 1) // unit_bytes - first_units + 1
    owner = np.repeat(np.arange(len(indices)), counts)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    unit_begins = (first_units[owner] + rank) * unit_bytes - begins[owner]
    skips = np.maximum(unit_begins, 0)
    lengths = np.minimum(unit_begins + unit_bytes, log.payload_bytes[indices][owner]) - skips
    return np.stack([indices[owner], skips, lengths], axis=1)


def extents_of(log: WriteLog, pieces: Int64Array) -> list[Extent]:
    """Return pieces as extents, neighbours joined."""
    device = log.offset_bytes[pieces[:, 0]] + pieces[:, 1]
    source = log.payload_offset_bytes[pieces[:, 0]] + pieces[:, 1]
    length = pieces[:, 2]
    starts = np.ones(len(pieces), dtype=bool)
    starts[1:] = (device[1:] != device[:-1] + length[:-1]) | (source[1:] != source[:-1] + length[:-1])
    first = np.flatnonzero(starts)
    joined = np.add.reduceat(length, first) if len(first) else length
    rows = zip(device[first].tolist(), source[first].tolist(), joined.tolist(), strict=True)
    return [Extent(*row) for row in rows]


def base_extents(log: WriteLog, from_entry: int, to_entry: int) -> list[Extent]:
    """Return what moves a base from `from_entry` to `to_entry`, without writes that a later one replaces exactly."""
    latest: dict[tuple[int, int], int] = {}
    for entry in (from_entry + np.flatnonzero(log.payload_bytes[from_entry:to_entry])).tolist():
        place = (int(log.offset_bytes[entry]), int(log.payload_bytes[entry]))
        latest.pop(place, None)
        latest[place] = entry
    return extents_of(log, whole_pieces(log, list(latest.values())))


def read(log: WriteLog, base_end: int, pieces: Int64Array, offset_bytes: int, length_bytes: int) -> bytes:
    """Return a range of the device after all entries before `base_end` and then these pieces."""
    data = bytearray(length_bytes)
    end_bytes = offset_bytes + length_bytes
    begins = log.offset_bytes[:base_end]
    hit = (begins < end_bytes) & (begins + log.payload_bytes[:base_end] > offset_bytes)
    rows = np.concatenate([whole_pieces(log, np.flatnonzero(hit).tolist()), pieces])
    devices = log.offset_bytes[rows[:, 0]] + rows[:, 1]
    hit = (devices < end_bytes) & (devices + rows[:, 2] > offset_bytes)
    for (entry, skip, length), device in zip(rows[hit].tolist(), devices[hit].tolist(), strict=True):
        begin, end = max(device, offset_bytes), min(device + length, end_bytes)
        payload = log.payload(entry)[skip + begin - device : skip + end - device]
        data[begin - offset_bytes : end - offset_bytes] = payload
    return bytes(data)


def changed_sectors(log: WriteLog, entry: int, base_end: int) -> list[int]:
    """Return which sectors of a write, from 0, differ from the device after all entries before `base_end`."""
    length_bytes = int(log.payload_bytes[entry])
    before = read(log, base_end, np.zeros((0, 3), dtype=np.int64), int(log.offset_bytes[entry]), length_bytes)
    rows = [np.frombuffer(data, dtype=np.uint8).reshape(-1, SECTOR_BYTES) for data in (before, log.payload(entry))]
    changed: list[int] = np.flatnonzero((rows[0] != rows[1]).any(axis=1)).tolist()
    return changed


def overlaps(log: WriteLog, entries: Sequence[int], offset_bytes: int, length_bytes: int) -> bool:
    """Return whether any of these writes touches a range of the device."""
    return bool(touching(log, np.array(entries, dtype=np.int64), offset_bytes, length_bytes).any())


def touching(log: WriteLog, entries: Int64Array, offset_bytes: int, length_bytes: int) -> BoolArray:
    """Return for each entry whether it is a write that touches a range of the device."""
    begins, lengths = log.offset_bytes[entries], log.payload_bytes[entries]
    return (begins < offset_bytes + length_bytes) & (begins + lengths > offset_bytes) & (lengths > 0)
