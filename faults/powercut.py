"""Power cut on an honest disk: whole writes survive or are lost.

Model: a disk with a volatile cache. A FLUSH makes durable all writes completed before it was submitted; a FUA write is
durable when it completes; any other completed write may be on the medium or not, in any combination. For each epoch
`[FUA | MARK]* [W batch] FLUSH` three families of states are made, all provably legal from the log alone:

(a) A cut just after FUA_j, for every j: everything before the epoch, FUA_1 to FUA_j, and none of the batch. Legal
    because the former are durable, and whatever part of the batch had completed by then was not flushed, so all of it
    may be lost.
(b) A cut just before the closing FLUSH completes: everything before the epoch, all its FUA writes, and any subset of
    the batch. Legal because the whole batch had completed and none of it had to be durable. A subset that drops the
    newer of two writes to one sector keeps the older version, as a reordering cache may do. The tail is cut the same
    way at the end of the log: its writes had completed and were never flushed.
(c) The same two cuts in doubtful epochs, and with members of the batch in `Epoch.ambiguous`, if writes whose order is
    known cover every sector that is open (`state.is_told`). Legal because every order that the log allows leaves the
    same content.

Left out: a subset of the batch without all FUA writes of the epoch (the log does not tell which members of the batch
had completed by then); writes that were in flight and never completed; states that show an open sector (the log does
not tell its content); discards, which are ignored (see `faults.log`); torn writes (`faults.torn`). Apart from the last
two, exactly the contents are made that every history of the disk which agrees with the log can leave at one instant.
Left out are contents that each of them can leave, but some only before and others only after a FUA write: such a state
would have to answer for the earlier instant, at which the batch need not have completed.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

from rig.faults.epochs import Epoch
from rig.faults.log import WriteLog
from rig.faults.selection import Plan, Ranking, in_turns, select, spread
from rig.faults.state import CrashState, Draw, is_told, landable, make_state

# An epoch with more subsets than this is sampled.
SUBSETS_MAX = 64
# A subset of a longer batch is named by the seed of its draw, because a list would be too long for an id.
LISTED_MEMBERS_MAX = 48
# A seed draws which of so many states an epoch begins with: some of the batch, or a cut before a FUA.
_FIRST_STATES = 4
# So many places at which a longer batch is split to hide what is open.
_HIDDEN_MAX = 16
DRAW_PERCENTS = (50, 75, 25, 90, 10)


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan the crash states of a power cut at instants after entry `first_entry`; deterministic under `seed`."""

    def rank(epoch: Epoch) -> Ranking:
        subsets = before_flush(epoch, seed)
        if not epoch.open_sectors:
            return Ranking(turned(in_turns(subsets.states, after_fuas(epoch)), epoch, seed), subsets.exhaustive)
        known = () if epoch.doubtful else in_turns(subsets.states, after_fuas(epoch))
        hidden = (state for state in _hidden(epoch, seed) if is_told(log, state))
        is_exhaustive = subsets.exhaustive and 2 ** len(epoch.batch) <= SUBSETS_MAX
        return Ranking(turned(in_turns(known, hidden), epoch, seed), is_exhaustive)

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max, cuts_doubtful=True)


def everything_unflushed_lost(log: WriteLog, log_epochs: Sequence[Epoch], entry: int) -> CrashState:
    """Return what is left if the power goes just before log entry `entry` completes and the whole cache is lost.

    Raise `ValueError` for an entry after the end of the log. In a doubtful epoch the state follows log order, unproven.
    """
    if not 0 <= entry <= log.entry_count:
        raise ValueError(f"entry {entry} is not in this log, which has {log.entry_count} entries")
    epoch = log_epochs[bisect_left(log_epochs, entry, key=lambda epoch: epoch.end)]
    return make_state(epoch, bisect_left(epoch.fuas, entry))


def turned(ranked: Iterator[CrashState], epoch: Epoch, seed: int) -> Iterator[CrashState]:
    """Put a state of the first few first, drawn for each epoch.

    Transactions have as many epochs as each other. By a rule that counts epochs, a small budget would get the same kind
    of state from the same phase of every commit.
    """
    skipped = list(islice(ranked, _choice("turn", epoch, seed).randrange(_FIRST_STATES)))
    yield from islice(ranked, 1)
    yield from skipped
    yield from ranked


def before_flush(epoch: Epoch, seed: int) -> Ranking:
    """Return family (b): the cut just before the closing FLUSH."""
    members = landable(epoch)
    if 2 ** len(members) <= SUBSETS_MAX:
        return Ranking(_subsets(epoch, members, seed), exhaustive=True)
    return Ranking(_samples(epoch, members, seed), exhaustive=False)


def after_fuas(epoch: Epoch) -> Iterator[CrashState]:
    """Yield family (a): the cut before the first FUA write and after each one but the last, where (b) begins."""
    for fua_count in spread(len(epoch.fuas)):
        yield make_state(epoch, fua_count)


def _hidden(epoch: Epoch, seed: int) -> Iterator[CrashState]:
    """Yield states that need other writes to hide what is open: all of a small epoch, some of others."""
    members, fua_count = epoch.batch, len(epoch.fuas)
    if epoch.doubtful:
        yield from after_fuas(epoch)
    if 2 ** len(members) <= SUBSETS_MAX:
        yield from _subsets(epoch, members, seed)
        return
    yield make_state(epoch, fua_count, whole=members)
    for rank in islice(spread(len(members)), _HIDDEN_MAX):
        yield make_state(epoch, fua_count, whole=members[: rank + 1])
        yield make_state(epoch, fua_count, whole=members[rank + 1 :])
        yield make_state(epoch, fua_count, whole=members[:rank] + members[rank + 1 :])


def draws(epoch: Epoch, seed: int, unit_bytes: int = 0) -> Iterator[Draw]:
    """Yield seeded draws for one epoch, dense and sparse ones in turn; endless."""
    generator = random.Random(f"{seed}/{epoch.begin}/{unit_bytes}")
    while True:
        for percent in DRAW_PERCENTS:
            yield Draw(generator.getrandbits(64), percent, unit_bytes)


def _choice(what: str, epoch: Epoch, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}/{epoch.begin}")


def _subsets(epoch: Epoch, members: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield every subset of a small batch, the corners first, both parts in an order drawn for each epoch."""
    whole = range(len(members))
    corners = [(), tuple(whole), *((rank,) for rank in whole)]
    corners += [tuple(other for other in whole if other != rank) for rank in whole]
    corners += [tuple(part) for count in whole for part in (whole[:count], whole[count:])]
    masks = range(2 ** len(members))
    rest = [tuple(rank for rank in whole if mask >> rank & 1) for mask in masks]
    choice = _choice("subsets", epoch, seed)
    choice.shuffle(corners)
    choice.shuffle(rest)
    for ranks in dict.fromkeys(corners + rest):
        yield make_state(epoch, len(epoch.fuas), whole=(members[rank] for rank in ranks))


def _samples(epoch: Epoch, members: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield none, all, then beginnings, ends, single writes, all but one, and seeded draws in turn; endless."""
    fua_count = len(epoch.fuas)
    random_draws = draws(epoch, seed)
    yield make_state(epoch, fua_count)
    yield _drawn(epoch, members, next(random_draws))
    yield make_state(epoch, fua_count, whole=members)
    ranks = spread(len(members))
    first = _choice("samples", epoch, seed).randrange(len(ranks))
    for rank in ranks[first:] + ranks[:first]:
        yield make_state(epoch, fua_count, whole=members[: rank + 1])
        yield make_state(epoch, fua_count, whole=members[rank + 1 :])
        yield _drawn(epoch, members, next(random_draws))
        yield make_state(epoch, fua_count, whole=members[:rank] + members[rank + 1 :])
        yield make_state(epoch, fua_count, whole=(members[rank],))
    for draw in random_draws:
        yield _drawn(epoch, members, draw)


def _drawn(epoch: Epoch, members: tuple[int, ...], draw: Draw) -> CrashState:
    if len(members) > LISTED_MEMBERS_MAX:
        return make_state(epoch, len(epoch.fuas), draw=draw)
    landed = draw.choose(len(members)).tolist()
    whole = (member for member, has_landed in zip(members, landed, strict=True) if has_landed)
    return make_state(epoch, len(epoch.fuas), whole=whole)
