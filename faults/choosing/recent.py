"""Recent writes: the writes in the epoch of a cut and in the last few epochs before it.

For models of a disk that damages what it has just written. All writes of the epoch are taken to have landed, so any
fault of a state is due to the damage. Setup is never recent: no window starts before the first entry of the workload.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from rig.faults.choosing.selection import Budget, Plan, Ranking, select
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.damage import Damage
from rig.faults.states.state import CrashState, Window, landable, make_state, window_of

FLUSHES = 4


def recent_window(log_epochs: Sequence[Epoch], epoch: Epoch, first_entry: int) -> Window:
    """Return the window of recent writes at a cut in `epoch`."""
    count = 0
    while count < min(FLUSHES, epoch.number) and log_epochs[epoch.number - count - 1].begin > first_entry:
        count += 1
    return window_of(log_epochs, epoch, count)


def all_landed(epoch: Epoch, damage: Damage) -> CrashState:
    """Return the state in which everything landed, with one damage."""
    return make_state(epoch, len(epoch.fuas), whole=landable(epoch), damages=(damage,))


def damaged_states(
    log: WriteLog,
    log_epochs: Sequence[Epoch],
    damages: Callable[[Window, random.Random], Iterator[Damage]],
    budget: Budget,
) -> Plan:
    """Plan states with one damage each, drawn from an endless supply for the recent window of each epoch."""

    def rank(epoch: Epoch) -> Ranking:
        window = recent_window(log_epochs, epoch, budget.first_entry)
        if not window.members:
            return Ranking((), exhaustive=True)
        drawn = damages(window, random.Random(f"{budget.seed}/{epoch.begin}"))
        return Ranking((all_landed(epoch, damage) for damage in drawn), exhaustive=False)

    return select(log, log_epochs, rank, budget)
