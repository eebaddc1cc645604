"""Power cut on an honest disk: what was not flushed survives or is lost, in units of the disk.

Model: a disk with a volatile cache. A FLUSH makes durable all writes completed before it was submitted; a FUA write is
durable when it completes; any other completed write may be on the medium or not, in any combination. No disk writes
more than its unit atomically (`Device.atomic_bytes`, 4096 unless the device says otherwise), so in a log of a recording
each part of a write between multiples of the unit is an entry of its own (`WriteLog.split`), and "write" means such a
part below. For each epoch `[FUA | MARK]* [W batch] FLUSH` three families of states are made, all provably legal from
the log alone, and a fourth where it is also known when each write was submitted (`rig.faults.log.submissions`):

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
(d) The same two cuts with any subset of `Epoch.ahead`: writes that had been submitted by then, in flight or completed,
    and that were not durable. Legal because a disk may put on its medium whatever it has been sent.

Alike epochs share one agenda, which decides the subsets of (b) that each of them tries first
(`rig.faults.choosing.phases`, `agenda`).

Left out: without an account of submissions, a subset of the batch without all FUA writes of the epoch (the log does not
tell which members of the batch had completed by then) and writes in flight; states that show an open sector (the log
does not tell its content); discards, which are ignored (see `rig.faults.log.log`); torn units
(`rig.faults.models.torn`). Apart from the last two, exactly the contents are made that a disk with this account can
leave. Without an account, exactly the contents are made that every history of the disk which agrees with the log can
leave at one instant. So without an account a content is left out if every such history can leave it, but some only
before and others only after a FUA write: its state would have to answer for the earlier instant, at which the batch
need not have completed.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rig.faults.choosing.agenda import LISTED_MEMBERS_MAX, Choice, agenda, in_turn, is_small
from rig.faults.choosing.phases import phases
from rig.faults.choosing.selection import Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.state import CrashState, Draw, is_told, landable, make_state

# A seed draws which family an epoch begins with: subsets of the batch in half of the epochs, others in a quarter each.
_OPENINGS = (0, 0, 1, 2)
# Places at which a longer batch is split to hide what is open.
_HIDDEN_MAX = 16
DRAW_PERCENTS = (50, 75, 25, 90, 10)


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan the crash states of a power cut at instants after entry `first_entry`; deterministic under `seed`."""
    turns = Turns(log, [epoch for epoch in log_epochs if epoch.end > first_entry], seed)

    def rank(epoch: Epoch) -> Ranking:
        subsets = before_flush(epoch, turns)
        if not epoch.open_sectors:
            flying = _ahead(epoch, seed)
            families = (subsets.states, after_fuas(epoch), flying.states)
            first = opening(epoch, seed)
            return Ranking(in_turns(*families[first:], *families[:first]), subsets.exhaustive and flying.exhaustive)
        known = () if epoch.doubtful else in_turns(subsets.states, after_fuas(epoch))
        hidden = (state for state in _hidden(epoch, seed) if is_told(log, state))
        is_exhaustive = subsets.exhaustive and is_small(len(epoch.batch))
        return Ranking(in_turns(known, hidden), is_exhaustive)

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max, cuts_doubtful=True)


def everything_unflushed_lost(log: WriteLog, log_epochs: Sequence[Epoch], entry: int) -> CrashState:
    """Return what is left if the power goes just before log entry `entry` completes and the whole cache is lost.

    Raise `ValueError` for an entry after the end of the log. In a doubtful epoch the state follows log order, unproven.
    """
    if not 0 <= entry <= log.entry_count:
        raise ValueError(f"entry {entry} is not in this log, which has {log.entry_count} entries")
    epoch = log_epochs[bisect_left(log_epochs, entry, key=lambda epoch: epoch.end)]
    return make_state(epoch, bisect_left(epoch.fuas, entry))


def opening(epoch: Epoch, seed: int) -> int:
    """Return which family of states comes first: 0 for subsets of the batch, 1 after FUA writes, 2 ahead of the cut.

    Drawn for each epoch: by a rule that counts epochs, the same phase of every commit would begin with the same one.
    """
    return _chance("opening", epoch, seed).choice(_OPENINGS) if epoch.fuas or any(epoch.ahead) else 0


class Turns:
    """Which choice each epoch takes next: the agenda of each phase, and its epochs in an order drawn by a seed."""

    def __init__(self, log: WriteLog, log_epochs: Sequence[Epoch], seed: int) -> None:
        self._seed = seed
        self._order: dict[int, tuple[list[Choice], int, int]] = {}
        for phase in phases(log, log_epochs):
            chance = random.Random(f"phase {seed}/{phase.text}")
            choices = agenda(len(phase.roles), chance)
            shuffled = chance.sample(phase.epochs, len(phase.epochs))
            # Epochs that begin with another family come later to their first choice.
            shuffled.sort(key=lambda epoch: opening(epoch, seed) != 0)
            for rank, epoch in enumerate(shuffled):
                self._order[epoch.number] = choices, rank, len(shuffled)

    def of(self, epoch: Epoch) -> Iterator[CrashState]:
        """Yield the states of an epoch's batch: every subset of a small one; endless for others."""
        members = landable(epoch)
        if epoch.number not in self._order:
            return _in_order(epoch, len(epoch.fuas), members, self._seed)
        return _taken(epoch, len(epoch.fuas), members, in_turn(*self._order[epoch.number]), self._seed)


def before_flush(epoch: Epoch, turns: Turns) -> Ranking:
    """Return family (b): the cut just before the closing FLUSH."""
    return Ranking(turns.of(epoch), is_small(len(landable(epoch))))


def _ahead(epoch: Epoch, seed: int) -> Ranking:
    """Return family (d): what landed ahead of each FUA write, and of the closing FLUSH together with the batch."""
    found = []
    for fua_count in spread(len(epoch.ahead)):
        # If the FUA write of the cut itself landed, the next cut has the same content and has seen more.
        members = tuple(entry for entry in epoch.ahead[fua_count] if entry not in epoch.fuas[fua_count : fua_count + 1])
        if members and fua_count == len(epoch.fuas):
            members = tuple(sorted((*members, *landable(epoch))))
        if members:
            found.append(Ranking(_in_order(epoch, fua_count, members, seed), is_small(len(members))))
    return Ranking(in_turns(*(one.states for one in found)), all(one.exhaustive for one in found))


def after_fuas(epoch: Epoch) -> Iterator[CrashState]:
    """Yield family (a): the cut before the first FUA write and after each one but the last, where (b) begins."""
    for fua_count in spread(len(epoch.fuas)):
        yield make_state(epoch, fua_count)


def _hidden(epoch: Epoch, seed: int) -> Iterator[CrashState]:
    """Yield states that need other writes to hide what is open: all states of a small epoch, some of a larger one."""
    members, fua_count = epoch.batch, len(epoch.fuas)
    if epoch.doubtful:
        yield from after_fuas(epoch)
    if is_small(len(members)):
        yield from _in_order(epoch, fua_count, members, seed)
        return
    yield make_state(epoch, fua_count, whole=members)
    for rank in islice(spread(len(members)), _HIDDEN_MAX):
        yield make_state(epoch, fua_count, whole=members[: rank + 1])
        yield make_state(epoch, fua_count, whole=members[rank + 1 :])
        yield make_state(epoch, fua_count, whole=members[:rank] + members[rank + 1 :])


def draws(epoch: Epoch, seed: int, unit_bytes: int = 0) -> Iterator[Draw]:
    """Yield seeded draws for one epoch, alternating dense and sparse ones; endless."""
    generator = random.Random(f"{seed}/{epoch.begin}/{unit_bytes}")
    while True:
        for percent in DRAW_PERCENTS:
            yield Draw(generator.getrandbits(64), percent, unit_bytes)


def _chance(what: str, epoch: Epoch, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}/{epoch.begin}")


def _in_order(epoch: Epoch, fua_count: int, members: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield the states of an epoch that shares its choices with no other."""
    return _taken(epoch, fua_count, members, agenda(len(members), _chance("subsets", epoch, seed)), seed)


def _taken(
    epoch: Epoch, fua_count: int, members: tuple[int, ...], choices: Iterable[Choice], seed: int
) -> Iterator[CrashState]:
    """Yield the states of these choices; for a long batch seeded draws follow without end."""
    random_draws = draws(epoch, seed)
    for choice in choices:
        if choice is None:
            yield _drawn(epoch, fua_count, members, next(random_draws))
        else:
            yield _landed(epoch, fua_count, [members[rank] for ranks in choice for rank in ranks])
    if not is_small(len(members)):
        for draw in random_draws:
            yield _drawn(epoch, fua_count, members, draw)


def _landed(epoch: Epoch, fua_count: int, members: Sequence[int]) -> CrashState:
    """Return the state in which these writes landed; they are members of the batch or ahead of the cut."""
    ahead = [entry for entry in members if entry in epoch.ahead_at(fua_count)]
    return make_state(epoch, fua_count, whole=(entry for entry in members if entry not in ahead), ahead=ahead)


def _drawn(epoch: Epoch, fua_count: int, members: tuple[int, ...], draw: Draw) -> CrashState:
    # Before the last FUA write the whole batch may have landed ahead of the cut, and an id has no draw for that.
    if len(members) > LISTED_MEMBERS_MAX and fua_count == len(epoch.fuas) and members == landable(epoch):
        return make_state(epoch, fua_count, draw=draw)
    landed = draw.choose(len(members)).tolist()
    # The id of a long list would be too long, so only its beginning is drawn.
    chosen = [member for member, has_landed in zip(members, landed, strict=True) if has_landed]
    return _landed(epoch, fua_count, chosen[:LISTED_MEMBERS_MAX])
