"""The phases of a commit: which epochs of a log are alike.

A write log knows sectors, not files. But it knows enough about a write to recognise a phase of a commit:

- whether the file system flagged the write as metadata. A metadata write belongs to a journal if it begins where the
  previous metadata write, or the last FUA one, ended; a metadata write elsewhere is in place.
- for data, whether the place in which it begins was written before: a file that grows or a file that is written again.

Epochs are alike if their batches have the same number of writes, with the same roles in the same order. FUA writes do
not count: they end the phase before. Left out: epochs with open sectors, because a plan cannot take every subset there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from rig.faults.log.epoch import Epoch
from rig.faults.log.log import EntryFlag, WriteLog
from rig.faults.states.state import landable

_BLOCK_BYTES = 4096


class WriteRole(StrEnum):
    """What a write is for, as far as the log tells."""

    JOURNAL = "journal"
    METADATA = "metadata in place"
    GROWING = "new data"
    REWRITING = "data written again"


@dataclass(frozen=True)
class Phase:
    """Alike epochs, in the order of the log. A batch counts only the members that may land in any state."""

    roles: tuple[WriteRole, ...]
    epochs: tuple[Epoch, ...]

    @property
    def text(self) -> str:
        """Return the roles in words, such as `new data, journal x7`."""
        runs = ((role, len(list(run))) for role, run in groupby(self.roles))
        return ", ".join(role.value + (f" x{count}" if count > 1 else "") for role, count in runs)


def phases(log: WriteLog, log_epochs: Sequence[Epoch]) -> list[Phase]:
    """Return the phases of these epochs, the one with most epochs first; epochs without a batch belong to no phase."""
    known = _roles(log)
    alike: dict[tuple[WriteRole, ...], list[Epoch]] = {}
    for epoch in log_epochs:
        members = landable(epoch)
        if members and not epoch.open_sectors:
            alike.setdefault(tuple(known[entry] for entry in members), []).append(epoch)
    groups = [Phase(roles, tuple(own)) for roles, own in alike.items()]
    return sorted(groups, key=lambda phase: -len(phase.epochs))


def _roles(log: WriteLog) -> dict[int, WriteRole]:
    """Return the role of each entry that writes something."""
    roles: dict[int, WriteRole] = {}
    written: set[int] = set()
    end = fua_end = -1
    flags, begins, ends = log.flags.tolist(), log.offset_bytes.tolist(), (log.offset_bytes + log.payload_bytes).tolist()
    for entry, flag in enumerate(flags):
        if flag & (EntryFlag.MARK | EntryFlag.DISCARD) or begins[entry] == ends[entry]:
            continue
        begin, previous_end, end_of_this = begins[entry], end, ends[entry]
        if flag & EntryFlag.METADATA:
            roles[entry] = WriteRole.JOURNAL if begin in (previous_end, fua_end) else WriteRole.METADATA
            end = end_of_this
            fua_end = end if flag & EntryFlag.FUA else fua_end
        else:
            roles[entry] = WriteRole.REWRITING if begin // _BLOCK_BYTES in written else WriteRole.GROWING
            written.update(range(begin // _BLOCK_BYTES, -(-end_of_this // _BLOCK_BYTES)))
    return roles
