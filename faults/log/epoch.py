"""An epoch: the entries of a log between two FLUSHes. `rig.faults.log.epochs` splits a log into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class OpenSector(NamedTuple):
    """A sector whose content is open in an epoch if this write is the last one that landed there."""

    # The number of the sector of 512 bytes.
    sector: int
    # A write of this epoch, or a durable one of an earlier epoch. In that case no FUA of this epoch landed there.
    writer: int
    # Whether it has the bytes of the write that may have come after it, so that only garbage makes a difference.
    is_alike: bool


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
    # Members of the batch whose order to another write of the same sector is not known.
    ambiguous: tuple[int, ...] = ()
    # The sectors of this epoch whose content may be open.
    open_sectors: tuple[OpenSector, ...] = ()
    # For each number of FUA writes that landed, what may have landed ahead of the cut, see `rig.faults.log.ahead`.
    # Empty without an account of submissions, since the log does not tell.
    ahead: tuple[tuple[int, ...], ...] = ()

    def ahead_at(self, fua_count: int) -> tuple[int, ...]:
        """Return the writes that may have landed ahead of the cut after `fua_count` FUA writes, in log order."""
        return self.ahead[fua_count] if fua_count < len(self.ahead) else ()

    @property
    def doubtful(self) -> bool:
        """Whether the content at `begin` depends on an order that is open."""
        return any(open_sector.writer < self.begin for open_sector in self.open_sectors)
