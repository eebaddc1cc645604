"""Misdirected write: a recent write landed at a wrong place.

Model: one write of the epoch of the cut or of the four before it went astray. Its own place keeps what was there
before, or what another write of the window put there, and another place holds its data. All other writes landed. The
wrong place is the address with one bit of its block number (blocks of 4096 bytes) flipped, or the block after or
before.

How the disk lies: it acknowledges the write and the FLUSH after it, but the data is not where it belongs, and a range
that should not have changed is overwritten. No engine promises to survive this; the verdict is whether the engine
notices.

Left out: wrong places that another write of the window touches (the log does not always tell which came last); places
after the end of all that was ever written; writes that went astray in part; several stray writes. An epoch before the
cut that holds a write in `Epoch.ambiguous` is left out, with all epochs before it: the open write was flushed and may
not be missing, but the log does not tell what it left there. Sampled with a seed, each write equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rig.faults.choosing.recent import recent_window
from rig.faults.choosing.selection import Budget, Plan, Ranking, select
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import overlaps
from rig.faults.log.log import WriteLog
from rig.faults.states.damage import BLOCK_BYTES, LENGTH_BYTES_MAX, Astray, device_end
from rig.faults.states.state import CrashState, Window, make_lying_state

# If this many draws in a row find no free wrong place, the window is taken to have none.
_BARREN_DRAWS_MAX = 200


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan states with one recent write gone astray; deterministic."""

    def rank(epoch: Epoch) -> Ranking:
        window = _decidable_part(recent_window(log_epochs, epoch, budget.first_entry))
        if window.epochs[0].doubtful or not window.members:
            return Ranking((), exhaustive=True)
        return Ranking(_astray(log, window, random.Random(f"{budget.seed}/{epoch.begin}")), exhaustive=False)

    return select(log, log_epochs, rank, budget)


def _decidable_part(window: Window) -> Window:
    """Return the part of a window after the last of its flushed epochs that has a write whose order is open."""
    begin_rank = max((rank for rank, epoch in enumerate(window.epochs[:-1], start=1) if epoch.ambiguous), default=0)
    epochs = window.epochs[begin_rank:]
    return Window(epochs, tuple(member for member in window.members if member >= epochs[0].begin))


def _astray(log: WriteLog, window: Window, generator: random.Random) -> Iterator[CrashState]:
    block_count, barren_count = device_end(log) // BLOCK_BYTES, 0
    while barren_count < _BARREN_DRAWS_MAX:
        entry = generator.choice(window.members)
        begin, length = int(log.offset_bytes[entry]), int(log.payload_bytes[entry])
        bit = generator.randrange(max(1, block_count.bit_length()))
        place = generator.choice(
            [begin ^ (BLOCK_BYTES << bit), begin + BLOCK_BYTES, begin - BLOCK_BYTES, begin + length]
        )
        barren_count += 1
        if place < 0 or place + length > device_end(log) or length > LENGTH_BYTES_MAX:
            continue
        if not overlaps(log, window.members, place, length):
            barren_count = 0
            whole = (member for member in window.members if member != entry)
            yield make_lying_state(window, whole=whole, damages=(Astray(entry, place),))
