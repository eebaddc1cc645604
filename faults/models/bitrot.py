"""Bit rot: bits of any durable block flip while the disk is at rest.

Model: at the cut everything that completed has landed. Before the machine starts again, 1, 8 or 64 bits flip in one
block of 4096 bytes that is in use. A block is in use if the log wrote it at any time, during setup or mkfs too, and it
does not read zeros. Blocks that the file system has since freed count as well, because the disk cannot tell.

How the disk lies: it returns bytes that differ from those written, and no error. No engine promises to survive this;
the verdict is whether the engine notices. Many flips make no difference, because nothing reads the block.

Left out: rot in blocks of zeros and in blocks that were never written; several blocks; bits that decay into an
unreadable sector. Sampled with a seed, each block equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from rig.faults.choosing.recent import all_landed
from rig.faults.choosing.selection import Budget, Plan, Ranking, select
from rig.faults.log.arrays import Int64Array
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import unit_pieces
from rig.faults.log.log import WriteLog
from rig.faults.models.bitflip import BIT_COUNTS
from rig.faults.states.damage import BLOCK_BYTES, Flip
from rig.faults.states.state import CrashState, landable, make_state

# A drawn block of zeros is skipped; after this many in a row the epoch is taken to have no other blocks.
_BARREN_DRAWS_MAX = 1000


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan states with flipped bits in one block; deterministic."""
    writes = np.flatnonzero(log.payload_bytes)
    pieces = unit_pieces(log, writes.tolist(), BLOCK_BYTES)
    blocks = (log.offset_bytes[pieces[:, 0]] + pieces[:, 1]) // BLOCK_BYTES

    def rank(epoch: Epoch) -> Ranking:
        written: Int64Array = np.unique(blocks[pieces[:, 0] < epoch.end])
        generator = random.Random(f"{budget.seed}/{epoch.begin}/rot")
        return Ranking(_rotten(log, epoch, written.tolist(), generator), exhaustive=False)

    return select(log, log_epochs, rank, budget)


def _rotten(log: WriteLog, epoch: Epoch, blocks: list[int], generator: random.Random) -> Iterator[CrashState]:
    sound, barren_count = make_state(epoch, len(epoch.fuas), whole=landable(epoch)), 0
    while blocks and barren_count < _BARREN_DRAWS_MAX:
        offset = generator.choice(blocks) * BLOCK_BYTES
        barren_count += 1
        if any(sound.read(log, offset, BLOCK_BYTES)):
            bit_count = BIT_COUNTS[generator.randrange(len(BIT_COUNTS))]
            barren_count = 0
            yield all_landed(epoch, Flip(offset, BLOCK_BYTES, bit_count, generator.getrandbits(64)))
