"""Bit rot: bits of any durable block flip while the disk is at rest.

Model: at some cut all that completed has landed; then, before the machine starts again, 1, 8 or 64 bits flip in one
block of 4096 bytes that is in use. In use is a block that the log wrote at any time, setup and file system included,
and that does not read zeros: what the file system has freed since counts as well, since the disk does not know.

How the disk lies: it returns other bytes than were written, and no error. No engine is promised to stand that; what is
judged is whether it is noticed. A block that is read by nobody makes no difference, and many are.

Left out: rot in blocks of zeros and in blocks that nothing was ever written to; several blocks; bits that decay into an
unreadable sector. Sampled with a seed, each block as likely as any other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from rig.faults.bitflip import BIT_COUNTS
from rig.faults.damage import BLOCK_BYTES, Flip
from rig.faults.epochs import Epoch
from rig.faults.extents import unit_pieces
from rig.faults.log import Int64Array, WriteLog
from rig.faults.recent import all_landed
from rig.faults.selection import Plan, Ranking, select
from rig.faults.state import CrashState, landable, make_state

# Blocks of zeros are drawn and put back; an epoch with so many in a row is taken to have nothing else.
_BARREN_DRAWS_MAX = 1000


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan states with bits rotten in one block; deterministic under `seed`."""
    writes = np.flatnonzero(log.payload_bytes)
    pieces = unit_pieces(log, writes.tolist(), BLOCK_BYTES)
    blocks = (log.offset_bytes[pieces[:, 0]] + pieces[:, 1]) // BLOCK_BYTES

    def rank(epoch: Epoch) -> Ranking:
        written: Int64Array = np.unique(blocks[pieces[:, 0] < epoch.end])
        generator = random.Random(f"{seed}/{epoch.begin}/rot")
        return Ranking(_rotten(log, epoch, written.tolist(), generator), exhaustive=False)

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max)


def _rotten(log: WriteLog, epoch: Epoch, blocks: list[int], generator: random.Random) -> Iterator[CrashState]:
    sound, barren_count = make_state(epoch, len(epoch.fuas), whole=landable(epoch)), 0
    while blocks and barren_count < _BARREN_DRAWS_MAX:
        offset = generator.choice(blocks) * BLOCK_BYTES
        barren_count += 1
        if any(sound.read(log, offset, BLOCK_BYTES)):
            bit_count = BIT_COUNTS[generator.randrange(len(BIT_COUNTS))]
            barren_count = 0
            yield all_landed(epoch, Flip(offset, BLOCK_BYTES, bit_count, generator.getrandbits(64)))
