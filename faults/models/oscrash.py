"""Crash of the operating system: the page cache is lost, the disk keeps all that it completed.

Model: the kernel dies, the power stays on, and the disk writes its cache to the medium. The content after the crash is
what a reader of the disk would have seen at that instant. The log gives the order of completion among FUA writes and
marks, and among the writes of a batch, but not between the two kinds. So the contents that the disk passed through are
known only where the kinds do not mix. For each epoch `[FUA | MARK]* [W batch] FLUSH`:

(a) Just before the closing FLUSH completes: everything before the epoch, all its FUA writes and its whole batch. All of
    these had completed. Only writes of the next batch that completed while the FLUSH was in flight may be missing.
(b) Earlier: all its FUA writes, and the first m writes of the batch, for every m that is less than all. The log allows
    that the FUA writes came first, in which case the disk passed through each of these contents. It does not tell which
    marks of the epoch had been written by then. So the state answers only for the marks before the last FUA write, or
    before the epoch if it has none: its id ends in ".i", an instant earlier than the latest.

The kernel hands over whole writes and the disk finishes what it was given, so no part of a longer write lands alone.
Every state is also a state of `rig.faults.models.powercut`, at that instant or a later one, so it asks of a disk only
what the disk promises. Every epoch is enumerated.

Left out: contents before the FUA writes of an epoch (`rig.faults.models.powercut` has those without the batch); writes
that were in flight at the crash and may complete or tear after it; in a batch with members in `Epoch.ambiguous`, the
first of these and all later members; doubtful epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.faults.choosing.selection import Budget, Plan, Ranking, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.state import CrashState, make_state, settled_prefix, whole_counts


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan the states after an OS crash within a budget."""

    def rank(epoch: Epoch) -> Ranking:
        return Ranking(_views(log, epoch), exhaustive=True)

    return select(log, log_epochs, rank, budget)


def _views(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    members = settled_prefix(epoch)
    if not epoch.ambiguous:
        yield make_state(epoch, len(epoch.fuas), whole=members)
    earlier = epoch.fuas[-1] if epoch.fuas else epoch.begin
    counts = [count for count in whole_counts(log, members) if count < len(members) or epoch.ambiguous]
    for rank in spread(len(counts)):
        yield make_state(epoch, len(epoch.fuas), whole=members[: counts[rank]], cut_at=earlier)
