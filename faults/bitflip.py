"""Bit flips in recently written units.

Model: a disk that corrupts what it writes. Of a write of the epoch of the cut or of the four before it, one unit, a
sector of 512 bytes or a block of 4096, comes back with 1, 8 or 64 bits flipped, anywhere in it. Everything else is as
on a disk that loses nothing: all that completed before the cut landed, so what is wrong is the doing of the flip.

How the disk lies: it returns other bytes than were written, and no error. No engine is promised to stand that; what is
judged is whether it is noticed.

Left out: several units at once; flips that the disk's own code reports as an unreadable sector (`faults.lostrange`);
flips in what was written long ago (`faults.bitrot`). Sampled with a seed, each write as likely as any other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rig.faults.damage import Flip
from rig.faults.epochs import Epoch
from rig.faults.log import WriteLog
from rig.faults.recent import damaged_states
from rig.faults.selection import Plan
from rig.faults.state import UNIT_BYTES, Window

BIT_COUNTS = (1, 8, 64)


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan states with bits flipped in one recent unit; deterministic under `seed`."""

    def flips(window: Window, generator: random.Random) -> Iterator[Flip]:
        while True:
            for bit_count in BIT_COUNTS:
                entry, unit_bytes = generator.choice(window.members), generator.choice(UNIT_BYTES)
                sector = generator.randrange(int(log.payload_bytes[entry]) // 512)
                unit_begin = (int(log.offset_bytes[entry]) + sector * 512) // unit_bytes * unit_bytes
                yield Flip(unit_begin, unit_bytes, bit_count, generator.getrandbits(64))

    return damaged_states(log, log_epochs, flips, first_entry=first_entry, states_max=states_max, seed=seed)
