"""Epochs of a write log: the entries between two FLUSH entries.

The kernel lays an epoch out as `[FUA | MARK]* [W batch] FLUSH`. A completed normal write (W) waits in a list. A FLUSH
takes the writes that had completed when it was submitted; when it completes, it logs them and then itself. FUA writes
and MARKs are logged at once. `epochs` asserts this layout and raises `LogError` where a log breaks it, so all reasoning
about crash states may rely on it. The last epoch is the tail: the entries after the last FLUSH, logged when the target
was removed, never durable. It always exists and may be empty. Its layout is free, since the kernel puts a last MARK
after its writes.

The order of a W and a FUA write of one sector can be open (`faults.doubts`). `Epoch.ambiguous` lists each W that
differs from a FUA to which its order is open. A W with the bytes of the last FUA is listed too if it differs from an
earlier one, since a disk that lies may lose the last FUA alone. Listed Ws land only where newer writes hide what is
open. An epoch that starts on an open sector is `doubtful`; it is cut only where its own writes cover all such sectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.faults.ahead import Ahead
from rig.faults.doubts import OpenSector, doubts
from rig.faults.log import EntryFlag, WriteLog

# Plain numbers: an epoch has few entries, and arrays or members of an enumeration take longer for these.
_FUA, _DISCARD, _AT_ONCE = int(EntryFlag.FUA), int(EntryFlag.DISCARD), int(EntryFlag.FUA | EntryFlag.MARK)


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
    # The sectors of this epoch whose content may be open.
    open_sectors: tuple[OpenSector, ...] = ()
    # For each number of FUA writes that landed, what may have landed ahead of the cut, see `faults.ahead`. Empty
    # without an account of submissions, since the log does not tell.
    ahead: tuple[tuple[int, ...], ...] = ()

    def ahead_at(self, fua_count: int) -> tuple[int, ...]:
        """Return the writes that may have landed ahead of the cut after `fua_count` FUA writes, in log order."""
        return self.ahead[fua_count] if fua_count < len(self.ahead) else ()

    @property
    def doubtful(self) -> bool:
        """Whether the content at `begin` depends on an order that is open."""
        return any(one.writer < self.begin for one in self.open_sectors)


def epochs(log: WriteLog) -> tuple[Epoch, ...]:
    """Split a log into epochs, the tail last; raise `LogError` where it breaks the kernel's layout."""
    plain = tuple(_split(log))
    found = doubts(log, plain)
    ahead = Ahead(log, log.account) if log.account else None
    return tuple(
        replace(
            epoch,
            ambiguous=tuple(sorted(found.ambiguous[epoch.number])),
            open_sectors=tuple(found.sectors[epoch.number]),
            # Where the log leaves content open, nothing is added to what it proves.
            ahead=ahead.of(epoch.begin, epoch.end, epoch.fuas, epoch.batch)
            if ahead and not found.sectors[epoch.number]
            else (),
        )
        for epoch in plain
    )


def _split(log: WriteLog) -> Iterator[Epoch]:
    flags = log.flags
    flush_entries = np.flatnonzero(flags & EntryFlag.FLUSH)
    # The empty half of a split bio keeps the bio's other flags: a commit block comes as FLUSH|FUA, then FUA.
    bad = flush_entries[log.payload_bytes[flush_entries] > 0]
    if bad.size:
        raise log.error(int(bad[0]), "a FLUSH with data: dm splits such a bio into an empty FLUSH and the data")
    begin, flags_of = 0, flags.tolist()
    for number, flush in enumerate([*flush_entries.tolist(), None]):
        end = log.entry_count if flush is None else flush
        late = [entry for entry in range(begin, end) if not flags_of[entry] & _AT_ONCE]
        if flush is not None and late and len(late) < end - late[0]:
            raise log.error(late[0], f"a write precedes a FUA or MARK of its epoch, which FLUSH {flush} closes")
        fuas = tuple(entry for entry in range(begin, end) if flags_of[entry] & _FUA)
        batch = tuple(entry for entry in late if not flags_of[entry] & _DISCARD)
        yield Epoch(number, begin, flush, end, fuas, batch)
        begin = end + 1
