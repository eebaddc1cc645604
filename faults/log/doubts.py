"""The sectors whose content the log leaves open, epoch by epoch.

The log leaves one thing open: whether a W came before or after a FUA write of the same sector, if the FUA write is in
the same epoch or in the one before. (Both can complete while a FLUSH is in flight. One FLUSH in flight at a time is
assumed, unless an account of submissions shows that there were more.) The self-check of a recording (a replay of every
entry equals the device) settles some cases: a W that is the last writer of a sector, and differs there from the last
FUA, came after that FUA, and so after all earlier FUA writes. All later Ws came after them too, because Ws are logged
in the order in which they completed. With an account of submissions (`rig.faults.log.submissions`), a W is known to be
the later write if it was submitted after the FUA had completed. A W that had completed before the FUA was submitted is
no longer in the log (`submissions.attach`), so only writes in flight together stay open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rig.faults.log.epoch import Epoch, OpenSector
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog


@dataclass
class Doubts:
    """What is open, by the numbers of epochs."""

    # Ws that differ somewhere from a FUA write to which their order is open.
    ambiguous: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    sectors: defaultdict[int, list[OpenSector]] = field(default_factory=lambda: defaultdict(list))


def doubts(log: WriteLog, epochs: Sequence[Epoch]) -> Doubts:
    """Find everything whose order is open in a log."""
    found = Doubts()
    # The last FUA write proven to be older than the W in question.
    proven = -1
    for epoch, fuas in _with_fuas_in_reach(log, epochs):
        candidates = _overlapping(log, epoch.batch, fuas)
        last_writer = {sector: entry for entry in candidates for sector, _ in _sectors(log, [entry])}
        versions: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for fua in fuas if candidates else ():
            for sector, data in _sectors(log, [fua]):
                versions[sector].append((fua, data))
        for entry in candidates:
            written = {sector: data for sector, data in _sectors(log, [entry]) if sector in versions}
            # The sectors that this W and the last FUA leave different at the end of the epoch -> their next writer.
            decided = {
                sector: _next_writer(log, epoch.end, sector)
                for sector, data in written.items()
                if last_writer[sector] == entry and versions[sector][-1][1] != data
            }
            proofs = [versions[sector][-1][0] for sector, writer in decided.items() if writer is None]
            proven = max(proven, *proofs) if proofs else proven
            for sector, data in written.items():
                if any(
                    fua > proven and other != data and not _is_later(log, entry, fua) for fua, other in versions[sector]
                ):
                    found.ambiguous[epoch.number].add(entry)
                fua, other = versions[sector][-1]
                if fua <= proven or _is_later(log, entry, fua):
                    continue
                found.sectors[epoch.number].append(OpenSector(sector, entry, other == data))
                writer = decided.get(sector)
                for number in range(epoch.number + 1, _epoch_of(log, writer) + 1 if writer is not None else 0):
                    found.sectors[number].append(OpenSector(sector, entry, is_alike=False))
    return found


def _is_later(log: WriteLog, entry: int, fua: int) -> bool:
    """Whether an account of submissions says that a W was submitted after a FUA write had completed."""
    return log.account is not None and bool(log.account.completed[fua] < log.account.submitted[entry])


def _with_fuas_in_reach(log: WriteLog, epochs: Sequence[Epoch]) -> Iterator[tuple[Epoch, tuple[int, ...]]]:
    for number, epoch in enumerate(epochs):
        first = max(0, number - 1)
        while first > 0 and _were_in_flight_together(log, epochs[first - 1], epochs[number - 1]):
            first -= 1
        fuas = tuple(fua for one in epochs[first : number + 1] for fua in one.fuas)
        if fuas and epoch.batch:
            yield epoch, fuas


def _were_in_flight_together(log: WriteLog, earlier: Epoch, later: Epoch) -> bool:
    """Whether the FLUSH of the later epoch was submitted before the FLUSH of the earlier epoch had completed."""
    if log.account is None or earlier.flush is None or later.flush is None:
        return False
    return bool(log.account.submitted[later.flush] < log.account.completed[earlier.flush])


def _overlapping(log: WriteLog, batch: tuple[int, ...], fuas: tuple[int, ...]) -> list[int]:
    writes = np.array(batch)
    begins, ends = log.offset_bytes[writes], log.offset_bytes[writes] + log.length_bytes[writes]
    order = np.argsort(log.offset_bytes[list(fuas)], kind="stable")
    fua_begins = log.offset_bytes[list(fuas)][order]
    # For each FUA, the furthest end of all FUAs that start no later: a write overlaps one iff it starts before that.
    fua_ends = np.maximum.accumulate((log.offset_bytes + log.length_bytes)[list(fuas)][order])
    rank = np.searchsorted(fua_begins, ends, side="left") - 1
    hit = (rank >= 0) & (fua_ends[np.maximum(rank, 0)] > begins)
    found: list[int] = writes[hit].tolist()
    return found


def _sectors(log: WriteLog, entries: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    for entry in entries:
        first = int(log.offset_bytes[entry]) // SECTOR_BYTES
        data = log.payload(entry)
        for rank in range(len(data) // SECTOR_BYTES):
            yield first + rank, bytes(data[rank * SECTOR_BYTES : (rank + 1) * SECTOR_BYTES])


def _next_writer(log: WriteLog, after_entry: int, sector: int) -> int | None:
    begin = sector * SECTOR_BYTES
    offsets, lengths = log.offset_bytes[after_entry:], log.payload_bytes[after_entry:]
    writers = np.flatnonzero((offsets <= begin) & (offsets + lengths > begin))
    return after_entry + int(writers[0]) if writers.size else None


def _epoch_of(log: WriteLog, entry: int) -> int:
    return int(np.count_nonzero(log.flags[:entry] & EntryFlag.FLUSH))
