"""Power cut on a disk with power-loss protection: what survives is a prefix of what completed, in order.

Model: a disk whose capacitors let it write its cache to the medium in order of completion; at worst they run out, and
the newest writes are lost. A FLUSH and a FUA write promise the same as on any disk. Each epoch
`[FUA | MARK]* [W batch] FLUSH` gives two families, both of them states of `rig.faults.models.powercut` and legal for
its reasons:

(a) A cut just after FUA_j, for every j: everything before the epoch, FUA_1 to FUA_j, and none of the batch.
(b) A cut just before the closing FLUSH completes: everything before the epoch, all its FUA writes, and the first m
    writes of the batch, for every m up to all of them. Legal because the batch is logged in order of completion and
    none of it had to be durable. A disk whose capacitors never run out leaves the whole batch.

Every epoch is enumerated: it has about as many states as writes.

Left out: what `rig.faults.models.powercut` leaves out; in a batch with members in `Epoch.ambiguous`, the first of these
and all later members; the first writes of a batch without all FUA writes of the epoch (the log does not tell how the
two interleave); writes in flight and parts of writes (the capacitors let the disk finish a write that it has begun).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.models.powercut import after_fuas
from rig.faults.states.state import CrashState, make_state, settled_prefix, whole_counts


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan the crash states of a protected disk within a budget."""

    def rank(epoch: Epoch) -> Ranking:
        after = (state for state in after_fuas(epoch) if state.fua_count in whole_counts(log, epoch.fuas))
        return Ranking(in_turns(_prefixes(log, epoch), after), exhaustive=True)

    return select(log, log_epochs, rank, budget)


def _prefixes(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield the longest prefix, the shortest, then those in between, spread out."""
    members = settled_prefix(epoch)
    counts = whole_counts(log, members)
    for count in dict.fromkeys([len(members), *(counts[rank] for rank in spread(len(counts)))]):
        if count in counts:
            yield make_state(epoch, len(epoch.fuas), whole=members[:count])
