"""Bit flips in recently written units.

Model: a disk that corrupts what it writes. One write of the epoch of the cut or of the four epochs before it is
damaged: in one of its units, a sector of 512 bytes or a block of 4096, 1, 8 or 64 bits anywhere are flipped. All other
writes that completed before the cut landed, so whatever goes wrong is due to the flip.

How the disk lies: it returns bytes that differ from those written, and no error. No engine promises to survive this;
the verdict is whether the engine notices.

Left out: several units at once; flips that the disk's error correction reports as an unreadable sector
(`rig.faults.models.lostrange`); flips in data written long ago (`rig.faults.models.bitrot`). Sampled with a seed, each
write equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rig.faults.choosing.recent import damaged_states
from rig.faults.choosing.selection import Budget, Plan
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.damage import Flip
from rig.faults.states.state import UNIT_BYTES, Window

BIT_COUNTS = (1, 8, 64)


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan states with bits flipped in one recent unit; deterministic."""

    def flips(window: Window, generator: random.Random) -> Iterator[Flip]:
        while True:
            for bit_count in BIT_COUNTS:
                entry, unit_bytes = generator.choice(window.members), generator.choice(UNIT_BYTES)
                sector = generator.randrange(int(log.payload_bytes[entry]) // 512)
                unit_begin = (int(log.offset_bytes[entry]) + sector * 512) // unit_bytes * unit_bytes
                yield Flip(unit_begin, unit_bytes, bit_count, generator.getrandbits(64))

    return damaged_states(log, log_epochs, flips, budget)
