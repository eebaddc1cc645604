"""Lying flush: the disk ignored the last FLUSHes before the power cut, and FUA on writes as well.

Model: a disk with a volatile cache that is honest up to some FLUSH. From then on it reports every FLUSH and every FUA
write as done but makes nothing durable; the power goes n FLUSHes later. Everything that completed before the last
honest FLUSH was submitted is durable, with all FUA writes before its completion. Any subset of the later whole writes,
which lie in n + 1 epochs, may be missing. n = 1, 2, 4, 8, 16, and all FLUSHes since the database was set up.

How the disk lies: it breaks the assumption of `rig.faults.models.powercut` that an acknowledged FLUSH or FUA is
durable. It does nothing worse: it loses writes or keeps older versions, and invents nothing. One family of states is
enough, the cut just before the closing FLUSH of an epoch: by then all writes of the window, the batch of the last epoch
included, have completed, and every state with fewer of them is a subset. So that is the latest instant of each state.
Wherever log order decides the content, it is the order of completion, because members of the batch whose order to a FUA
write is open (`Epoch.ambiguous`) never land; the cache may leave them out too. Since single FUA writes may be lost
here, a member with the same bytes as the last FUA is open if an earlier FUA in reach differs.

Left out: torn writes; windows that reach into the setup, which no acknowledgement covers; windows that begin at a
doubtful epoch. Small windows are enumerated, the others sampled: nothing landed, the newest epoch without the older
ones, one epoch missing, no FUA or only FUA writes, and seeded draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from rig.faults.choosing.agenda import LISTED_MEMBERS_MAX, SUBSETS_MAX
from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.models.powercut import draws
from rig.faults.states.state import CrashState, Draw, Window, make_lying_state, window_of

FLUSHES_IGNORED = (1, 2, 4, 8, 16)


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan the states of a lying disk within a budget; deterministic."""

    def rank(epoch: Epoch) -> Ranking:
        windows = [
            window_of(log_epochs, epoch, count) for count in ignored_counts(log_epochs, epoch, budget.first_entry)
        ]
        windows = [window for window in windows if not window.epochs[0].doubtful]
        is_small = not windows or 2 ** len(windows[-1].members) <= SUBSETS_MAX
        return Ranking(in_turns(*(_of_window(window, budget.seed) for window in windows)), is_small)

    return select(log, log_epochs, rank, budget)


def ignored_counts(log_epochs: Sequence[Epoch], epoch: Epoch, first_entry: int) -> list[int]:
    """Return how many FLUSHes before the cut are ignored, ascending; no window begins at or before `first_entry`."""
    first = next(epoch.number for epoch in log_epochs if epoch.begin > first_entry or epoch is log_epochs[-1])
    most = epoch.number - first
    return sorted({count for count in (*FLUSHES_IGNORED, most) if 0 < count <= most})


def _of_window(window: Window, seed: int) -> Iterator[CrashState]:
    members = window.members
    if 2 ** len(members) <= SUBSETS_MAX:
        for size in range(len(members) + 1):
            for whole in combinations(members, size):
                yield make_lying_state(window, whole=whole)
        return
    random_draws = draws(window.epochs[-1], seed + window.flushes_ignored)
    for corner in _corners(window):
        yield make_lying_state(window, whole=corner)
        yield _state_of_draw(window, next(random_draws))
    for draw in random_draws:
        yield _state_of_draw(window, draw)


def _corners(window: Window) -> Iterator[list[int]]:
    members = window.members
    fuas = {fua for epoch in window.epochs for fua in epoch.fuas}
    yield []
    yield [member for member in members if member >= window.epochs[-1].begin]
    yield [member for member in members if member not in fuas]
    yield [member for member in members if member in fuas]
    for rank in spread(len(window.epochs)):
        gone = window.epochs[rank]
        yield [member for member in members if not gone.begin <= member < gone.end]


def _state_of_draw(window: Window, draw: Draw) -> CrashState:
    if len(window.members) > LISTED_MEMBERS_MAX:
        return make_lying_state(window, draw=draw)
    landed = draw.choose(len(window.members)).tolist()
    whole = (member for member, has_landed in zip(window.members, landed, strict=True) if has_landed)
    return make_lying_state(window, whole=whole)
