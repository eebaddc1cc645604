"""The sectors whose content the log leaves open, epoch by epoch.

By the log alone one thing is open: whether a W came before or after a FUA write of the same sector, if the FUA write
is in the same epoch or in the one before. (Both can complete while a FLUSH is in flight.) Two things are assumed: one
FLUSH is in flight at a time, and no two writes of one sector are. The self-check of a recording (a replay of every
entry equals the device) settles some cases: a W that is the last writer of a sector, and differs there from the last
FUA, came after that FUA, and so after all earlier FUA writes. All later Ws came after them too, because Ws are logged
in the order in which they completed.

With an account of submissions (`rig.faults.log.submissions`), nothing is assumed. A write is known to be later than
another if it was submitted after the other had completed. A W that had completed before a FUA write of its place was
submitted is no longer in the log (`submissions.attach`). So only writes in flight together stay open, of either kind
(`rig.faults.log.contests`), unless the later one in the log is the last writer of the sector and differs from the
other: then the self-check has shown it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rig.faults.log.account import Account
from rig.faults.log.contests import contests
from rig.faults.log.epoch import Epoch, OpenSector
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog


@dataclass
class Doubts:
    """What is open, by the numbers of epochs."""

    # Ws that differ somewhere from another write to which their order is open.
    ambiguous: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    sectors: defaultdict[int, list[OpenSector]] = field(default_factory=lambda: defaultdict(list))


def doubts(log: WriteLog, epochs: Sequence[Epoch]) -> Doubts:
    """Find everything whose order is open in a log."""
    return _by_log(log, epochs) if log.account is None else _by_account(log, log.account)


def _by_account(log: WriteLog, account: Account) -> Doubts:
    open_orders = Doubts()
    for earlier, later in contests(log, account):
        others = dict(_sectors(log, [earlier]))
        number = _epoch_of(log, later)
        for sector, data in _sectors(log, [later]):
            if sector not in others:
                continue
            is_alike = data == others[sector]
            if not is_alike and _next_writer(log, later + 1, sector) is None:
                continue
            open_orders.sectors[number].append(OpenSector(sector, later, is_alike))
            if is_alike:
                continue
            if not log.flags[later] & EntryFlag.FUA:
                open_orders.ambiguous[number].add(later)
            _stays_open(log, open_orders, number, OpenSector(sector, later, is_alike=False))
    return open_orders


def _stays_open(log: WriteLog, open_orders: Doubts, number: int, open_sector: OpenSector) -> None:
    """Note a sector as open in the epochs after its writer's epoch, until it is written again."""
    flushes = np.flatnonzero(log.flags & EntryFlag.FLUSH)
    end = int(flushes[number]) if number < len(flushes) else log.entry_count
    again = _next_writer(log, open_sector.writer + 1, open_sector.sector)
    if again is None or again >= end:
        last = len(flushes) if again is None else _epoch_of(log, again)
        for later in range(number + 1, last + 1):
            open_orders.sectors[later].append(open_sector)


def _by_log(log: WriteLog, epochs: Sequence[Epoch]) -> Doubts:
    open_orders = Doubts()
    # The last FUA write proven to be older than the W in question.
    proven = -1
    for epoch, fuas in _with_fuas_in_reach(epochs):
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
                if any(fua > proven and other != data for fua, other in versions[sector]):
                    open_orders.ambiguous[epoch.number].add(entry)
                fua, other = versions[sector][-1]
                if fua <= proven:
                    continue
                open_orders.sectors[epoch.number].append(OpenSector(sector, entry, other == data))
                writer = decided.get(sector)
                for number in range(epoch.number + 1, _epoch_of(log, writer) + 1 if writer is not None else 0):
                    open_orders.sectors[number].append(OpenSector(sector, entry, is_alike=False))
    return open_orders


def _with_fuas_in_reach(epochs: Sequence[Epoch]) -> Iterator[tuple[Epoch, tuple[int, ...]]]:
    for number, epoch in enumerate(epochs):
        fuas = tuple(fua for epoch in epochs[max(0, number - 1) : number + 1] for fua in epoch.fuas)
        if fuas and epoch.batch:
            yield epoch, fuas


def _overlapping(log: WriteLog, batch: tuple[int, ...], fuas: tuple[int, ...]) -> list[int]:
    writes = np.array(batch)
    begins, ends = log.offset_bytes[writes], log.offset_bytes[writes] + log.length_bytes[writes]
    order = np.argsort(log.offset_bytes[list(fuas)], kind="stable")
    fua_begins = log.offset_bytes[list(fuas)][order]
    # For each FUA, the furthest end of all FUAs that start no later: a write overlaps one iff it starts before that.
    fua_ends = np.maximum.accumulate((log.offset_bytes + log.length_bytes)[list(fuas)][order])
    rank = np.searchsorted(fua_begins, ends, side="left") - 1
    hit = (rank >= 0) & (fua_ends[np.maximum(rank, 0)] > begins)
    entries: list[int] = writes[hit].tolist()
    return entries


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
