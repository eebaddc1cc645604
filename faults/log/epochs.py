"""Epochs of a write log: the entries between two FLUSH entries.

The kernel lays an epoch out as `[FUA | MARK]* [W batch] FLUSH`. A completed normal write (W) waits in a list. A FLUSH
takes the writes that had completed when it was submitted; when it completes, it logs them and then itself. FUA writes
and MARKs are logged at once. `epochs` asserts this layout and raises `LogError` where a log breaks it, so all reasoning
about crash states may rely on it. The last epoch is the tail: the entries after the last FLUSH, logged when the target
was removed, never durable. It always exists and may be empty. Its layout is free, since the kernel puts a last MARK
after its writes.

The order of a W and a FUA write of one sector can be open (`rig.faults.log.doubts`). `Epoch.ambiguous` lists each W
that differs from a FUA to which its order is open. A W with the bytes of the last FUA is listed too if it differs from
an earlier one, since a disk that lies may lose the last FUA alone. Listed Ws land only where newer writes hide what is
open. An epoch that starts on an open sector is `doubtful`; it is cut only where its own writes cover all such sectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rig.faults.log.ahead import Ahead
from rig.faults.log.doubts import doubts
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import EntryFlag, WriteLog

# Plain numbers: an epoch has few entries, and arrays or members of an enumeration take longer for these.
_FUA, _DISCARD, _AT_ONCE = int(EntryFlag.FUA), int(EntryFlag.DISCARD), int(EntryFlag.FUA | EntryFlag.MARK)


def epochs(log: WriteLog) -> tuple[Epoch, ...]:
    """Split a log into epochs, the tail last; raise `LogError` where it breaks the kernel's layout."""
    plain = tuple(_split_at_flushes(log))
    doubtful = doubts(log, plain)
    ahead = Ahead(log, log.account) if log.account else None
    return tuple(
        replace(
            epoch,
            ambiguous=tuple(sorted(doubtful.ambiguous[epoch.number])),
            open_sectors=tuple(doubtful.sectors[epoch.number]),
            # Where the log leaves content open, nothing is added to what it proves.
            ahead=ahead.of(epoch.begin, epoch.end, epoch.fuas, epoch.batch)
            if ahead and not doubtful.sectors[epoch.number]
            else (),
        )
        for epoch in plain
    )


def _split_at_flushes(log: WriteLog) -> Iterator[Epoch]:
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
