"""Epochs of a write log: the entries between two FLUSH entries.

The kernel lays an epoch out as `[FUA | MARK]* [W batch] FLUSH`. A completed normal write (W) waits in a list. A FLUSH
takes the writes that had completed when it was submitted; when it completes, it logs them and then itself. FUA writes
and MARKs are logged at once. `epochs` asserts this layout and raises `LogError` where a log breaks it, so all reasoning
about crash states may rely on it. The last epoch is the tail: the entries after the last FLUSH, logged when the target
was removed, never durable. It always exists and may be empty. Its layout is free, since the kernel puts a last MARK
after its writes.

The log leaves one thing open: whether a W came before or after a FUA write of the same sector, if that FUA is of the
same epoch or of the one before. (Both can complete while a FLUSH is in flight; one FLUSH in flight at a time is
assumed.) Where their bytes differ the order matters. It is known only if the W differs from the last such FUA and
nothing wrote that sector later: then the recording's self-check (a replay of every entry equals the device) has shown
that the W came after that FUA, and so after all earlier ones. A W with the same bytes as the last FUA proves nothing
about an earlier FUA that differs, and a disk that lies may lose the last one alone, so such a W is open too.
`Epoch.ambiguous` lists the open Ws, and no generator lets them land. Where an open W differs from the last FUA, an
epoch that starts on that sector is `doubtful`, and no generator cuts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.faults.log import EntryFlag, WriteLog


@dataclass(frozen=True)
class Epoch:
    """One epoch, by entry indices of its log."""

    number: int
    # The first entry after the previous FLUSH; everything before it is durable when the epoch starts.
    begin: int
    # The closing FLUSH; None for the tail.
    flush: int | None
    # The closing FLUSH, or the number of entries of the log for the tail; the last cut of the epoch is just before it.
    end: int
    fuas: tuple[int, ...]
    # The ordinary writes in completion order, without DISCARDs.
    batch: tuple[int, ...]
    # Members of the batch whose order to a FUA write of the same sector the log does not tell.
    ambiguous: tuple[int, ...] = ()
    # Whether the content at `begin` depends on such an order.
    doubtful: bool = False


def epochs(log: WriteLog) -> tuple[Epoch, ...]:
    """Split a log into epochs, the tail last; raise `LogError` where it breaks the kernel's layout."""
    plain = tuple(_split(log))
    ambiguous: dict[int, set[int]] = {}
    doubtful: set[int] = set()
    for epoch, fuas in _with_fuas_in_reach(plain):
        for doubt in _doubts(log, epoch, fuas):
            ambiguous.setdefault(epoch.number, set()).add(doubt.entry_index)
            doubtful.update(range(epoch.number + 1, doubt.last_epoch + 1))
    return tuple(
        replace(epoch, ambiguous=tuple(sorted(ambiguous.get(epoch.number, ()))), doubtful=epoch.number in doubtful)
        for epoch in plain
    )


def _split(log: WriteLog) -> Iterator[Epoch]:
    flags = log.flags
    flush_entries = np.flatnonzero(flags & EntryFlag.FLUSH)
    # The empty half of a split bio keeps the bio's other flags: a commit block comes as FLUSH|FUA, then FUA.
    bad = flush_entries[log.payload_bytes[flush_entries] > 0]
    if bad.size:
        raise log.error(int(bad[0]), "a FLUSH with data: dm splits such a bio into an empty FLUSH and the data")
    begin = 0
    for number, flush in enumerate([*flush_entries.tolist(), None]):
        end = log.entry_count if flush is None else flush
        part = flags[begin:end]
        at_once = (part & (EntryFlag.FUA | EntryFlag.MARK)) > 0
        late = np.flatnonzero(~at_once)
        if flush is not None and late.size and at_once[late[0] :].any():
            culprit = begin + int(late[0])
            raise log.error(culprit, f"a write precedes a FUA or MARK of its epoch, which FLUSH {flush} closes")
        fuas = begin + np.flatnonzero((part & EntryFlag.FUA) > 0)
        batch = begin + np.flatnonzero(~at_once & ((part & EntryFlag.DISCARD) == 0))
        yield Epoch(number, begin, flush, end, tuple(fuas.tolist()), tuple(batch.tolist()))
        begin = end + 1


@dataclass(frozen=True)
class _Doubt:
    entry_index: int
    # The last epoch to start on content that this entry leaves open, the one that rewrites the sector; -1 for none.
    last_epoch: int


def _with_fuas_in_reach(plain: Sequence[Epoch]) -> Iterator[tuple[Epoch, tuple[int, ...]]]:
    previous: tuple[int, ...] = ()
    for epoch in plain:
        fuas = previous + epoch.fuas
        previous = epoch.fuas
        if fuas and epoch.batch:
            yield epoch, fuas


def _doubts(log: WriteLog, epoch: Epoch, fuas: tuple[int, ...]) -> Iterator[_Doubt]:
    """Find the writes of a batch that overlap a FUA in reach, differ from it, and have no known order to it."""
    candidates = _overlapping(log, epoch.batch, fuas)
    if not candidates:
        return
    last_writer = {sector: entry for entry in candidates for sector, _ in _sectors(log, [entry])}
    versions: dict[int, list[tuple[int, bytes]]] = {}
    for fua in fuas:
        for sector, data in _sectors(log, [fua]):
            if sector in last_writer:
                versions.setdefault(sector, []).append((fua, data))
    for entry in candidates:
        # Sector -> the last FUA whose bytes there differ from the entry's.
        differing = {
            sector: max(fua for fua, other in versions[sector] if other != data)
            for sector, data in _sectors(log, [entry])
            if any(other != data for _, other in versions.get(sector, ()))
        }
        # The sectors whose content at the end of the epoch depends on the order.
        decided = [s for s, fua in differing.items() if last_writer[s] == entry and versions[s][-1][0] == fua]
        rewriters = {sector: _next_writer(log, epoch.end, sector) for sector in decided}
        # Content that survives to the end of the log proves that the entry came after that FUA and all earlier ones.
        proven = max((differing[sector] for sector, writer in rewriters.items() if writer is None), default=-1)
        open_sectors = {sector for sector, fua in differing.items() if fua > proven}
        if open_sectors:
            later = (rewriters[sector] for sector in open_sectors if sector in rewriters)
            yield _Doubt(entry, max((_epoch_of(log, writer) for writer in later if writer is not None), default=-1))


def _overlapping(log: WriteLog, batch: tuple[int, ...], fuas: tuple[int, ...]) -> list[int]:
    writes = np.array(batch)
    begins, ends = log.offset_bytes[writes], log.offset_bytes[writes] + log.length_bytes[writes]
    order = np.argsort(log.offset_bytes[list(fuas)], kind="stable")
    fua_begins = log.offset_bytes[list(fuas)][order]
    # For each FUA, the furthest end of all that start no later: a write overlaps one of them iff it starts before it.
    fua_ends = np.maximum.accumulate((log.offset_bytes + log.length_bytes)[list(fuas)][order])
    rank = np.searchsorted(fua_begins, ends, side="left") - 1
    hit = (rank >= 0) & (fua_ends[np.maximum(rank, 0)] > begins)
    found: list[int] = writes[hit].tolist()
    return found


def _sectors(log: WriteLog, entries: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    for entry in entries:
        first = int(log.offset_bytes[entry]) // log.sector_bytes
        data = log.payload(entry)
        for rank in range(len(data) // log.sector_bytes):
            yield first + rank, bytes(data[rank * log.sector_bytes : (rank + 1) * log.sector_bytes])


def _next_writer(log: WriteLog, after_entry: int, sector: int) -> int | None:
    begin = sector * log.sector_bytes
    offsets, lengths = log.offset_bytes[after_entry:], log.payload_bytes[after_entry:]
    writers = np.flatnonzero((offsets <= begin) & (offsets + lengths > begin))
    return after_entry + int(writers[0]) if writers.size else None


def _epoch_of(log: WriteLog, entry: int) -> int:
    return int(np.count_nonzero(log.flags[:entry] & EntryFlag.FLUSH))
