"""A recently written range is lost: it reads zeros, or it cannot be read at all.

Model: a disk that loses its mapping of a range in the power cut, like a flash disk that loses a page of its
translation table. The range is one write of the epoch of the cut or of the four before it, or one 4096-byte block of
that write. The range reads zeros, or every read of it fails with EIO. Everything else landed.

How the disk lies: zeros are not what was written, and the disk reports nothing. EIO is not a lie but a loss of durable
data. No engine promises to survive either; the verdict is whether the engine notices.

Left out: the rest of ranges longer than 1 MiB; errors that go away when a read is retried; several ranges. Zeros and
EIO take turns. Sampled with a seed, each write equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rig.faults.choosing.recent import damaged_states
from rig.faults.choosing.selection import Budget, Plan
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.damage import BLOCK_BYTES, LENGTH_BYTES_MAX, Unreadable, Zeros
from rig.faults.states.state import Window


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan states that lost one recent range; deterministic."""

    def losses(window: Window, generator: random.Random) -> Iterator[Zeros | Unreadable]:
        while True:
            for is_whole in (True, False):
                for kind in (Zeros, Unreadable):
                    yield kind(*_range(log, generator.choice(window.members), generator, is_whole=is_whole))

    return damaged_states(log, log_epochs, losses, budget)


def _range(log: WriteLog, entry: int, generator: random.Random, *, is_whole: bool) -> tuple[int, int]:
    begin, length = int(log.offset_bytes[entry]), int(log.payload_bytes[entry])
    if is_whole:
        return begin, min(length, LENGTH_BYTES_MAX)
    skip = generator.randrange(-(-length // BLOCK_BYTES)) * BLOCK_BYTES
    return begin + skip, min(BLOCK_BYTES, length - skip)
