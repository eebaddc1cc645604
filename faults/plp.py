"""Power cut on a disk with power-loss protection: what survives is a prefix of what completed, in order.

Model: a disk whose capacitors carry its cache to the medium in the order in which writes completed; at the worst they
run out, and the newest go. A FLUSH and a FUA write promise what they promise on any disk. Two families for each epoch
`[FUA | MARK]* [W batch] FLUSH`, both of them states of `faults.powercut` and legal as they are there:

(a) A cut just after FUA_j, for every j: everything before the epoch, FUA_1 to FUA_j, and none of the batch.
(b) A cut just before the closing FLUSH completes: everything before the epoch, all its FUA writes, and the first m
    writes of the batch, for every m up to all of them. Legal because the batch stands in the order of completion and
    none of it had to be durable. All of it is what a disk leaves whose capacitors never run out.

Every epoch is enumerated: it has no more states than writes.

Left out: what `faults.powercut` leaves out, and of a batch with members in `Epoch.ambiguous` all from the first of them
on; the first writes of a batch without all FUA writes of the epoch (the log
does not tell how the two interleave); writes in flight, and torn ones (the capacitors finish what was begun).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.faults.epochs import Epoch
from rig.faults.log import WriteLog
from rig.faults.powercut import after_fuas
from rig.faults.selection import Plan, Ranking, in_turns, select, spread
from rig.faults.state import CrashState, make_state, settled


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan the crash states of a protected disk, of instants behind entry `first_entry`; nothing in it is random."""
    del seed

    def rank(epoch: Epoch) -> Ranking:
        return Ranking(in_turns(_prefixes(epoch), after_fuas(epoch)), exhaustive=True)

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max)


def _prefixes(epoch: Epoch) -> Iterator[CrashState]:
    """Yield the longest prefix, the shortest, then those between, spread out."""
    members = settled(epoch)
    for count in dict.fromkeys([len(members), *spread(len(members))]):
        yield make_state(epoch, len(epoch.fuas), whole=members[:count])
