"""Shorn writes with garbage: the one write that the power cut interrupted left noise in one of its blocks.

Model: the disk of `rig.faults.models.torn` with atomic units of 512 bytes, interrupted in one write when the power
goes. In the block of 4096 bytes under the head, the first 1 to 7 sectors of the write are new and its other sectors
garbage; sectors outside the write are untouched. The write's other blocks are old or new. Both families of
`rig.faults.models.torn`:

(a) A cut just before FUA_j completes: everything before the epoch, the FUA writes before it whole, none of the batch,
    and FUA_j shorn. Legal because it had been submitted and was in flight, and this disk promises nothing about the
    sectors of an interrupted write.
(b) A cut just before the closing FLUSH completes, or at the end of the log for the tail: everything before the epoch,
    all its FUA writes, any of the batch, and one member of it shorn. Legal because the cache may be writing back any
    one of them when the power goes, at one place at a time.

The disk is honest: it was not writing anything that it had called durable. But a file system writes whole blocks, so
bytes next to those that a program changes are rewritten unchanged and are in danger too, even if they were durable.
That is collateral damage: the disk lacks powersafe overwrite, which engines take for granted. Shorn writes whose rest
is old are states of `rig.faults.models.torn`.

The log has to tell that the shorn write came after every durable FUA write of a sector with garbage, even one of the
same bytes: had the FUA write come later, it would have covered the garbage for good. (The order of two writes of the
same bytes makes no difference unless one leaves garbage.) Where the order is open, see `rig.faults.log.doubts`, no
garbage is made.

Left out: what `rig.faults.models.torn` leaves out; blocks that begin with garbage; several blocks. Garbage is drawn by
a seed in the id. The states of a member take turns: the other writes of the batch are absent, present up to it, or all
present.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import SECTOR_BYTES, WriteLog
from rig.faults.states.damage import Garbage, block_rests, may_be_covered
from rig.faults.states.state import CrashState, Tear, landable, make_state, unit_count


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan crash states with one shorn block of garbage; deterministic."""

    def rank(epoch: Epoch) -> Ranking:
        generator = random.Random(f"{budget.seed}/{epoch.begin}/shorn")
        ranked = in_turns(_shorn_members(log, epoch, generator), _shorn_fuas(log, epoch, generator))
        # Garbage cannot be enumerated, so only an epoch without writes is exhausted.
        return Ranking(ranked, exhaustive=not (landable(epoch) or epoch.fuas))

    return select(log, log_epochs, rank, budget)


def _shorn_members(log: WriteLog, epoch: Epoch, generator: random.Random) -> Iterator[CrashState]:
    members = landable(epoch)
    return in_turns(*(_shorn_member(log, epoch, rank, generator) for rank in spread(len(members))))


def _shorn_member(log: WriteLog, epoch: Epoch, rank: int, generator: random.Random) -> Iterator[CrashState]:
    members = landable(epoch)
    others = ((), members[:rank], members[:rank] + members[rank + 1 :])
    for number, (tear, garbage) in enumerate(_shorn(log, epoch, members[rank], generator)):
        whole = others[(number + rank) % len(others)]
        yield make_state(epoch, len(epoch.fuas), whole=whole, tears=(tear,), damages=(garbage,))


def _shorn_fuas(log: WriteLog, epoch: Epoch, generator: random.Random) -> Iterator[CrashState]:
    return in_turns(*(_shorn_fua(log, epoch, rank, generator) for rank in spread(len(epoch.fuas))))


def _shorn_fua(log: WriteLog, epoch: Epoch, rank: int, generator: random.Random) -> Iterator[CrashState]:
    for tear, garbage in _shorn(log, epoch, epoch.fuas[rank], generator):
        yield make_state(epoch, rank, tears=(tear,), damages=(garbage,))


def _shorn(log: WriteLog, epoch: Epoch, entry: int, generator: random.Random) -> Iterator[tuple[Tear, Garbage]]:
    """Yield every shear of every block of a write with its garbage; the later blocks alternate between old and new."""
    rests = block_rests(log, entry)
    for number, rank in enumerate(spread(len(rests))):
        first, count = rests[rank]
        later = range(first + count, unit_count(log, entry, SECTOR_BYTES)) if number % 2 else ()
        garbage = Garbage(entry, first, count, generator.getrandbits(64))
        if not may_be_covered(garbage, log, epoch):
            yield Tear(entry, SECTOR_BYTES, (*range(first), *later)), garbage
