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
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice

from rig.faults.choosing.agenda import LISTED_MEMBERS_MAX, Choice, Turns, agenda, is_small, pair_cover
from rig.faults.choosing.paircoverage import pair_coverage
from rig.faults.choosing.phases import Phase, phases
from rig.faults.choosing.selection import (
    Budget,
    ByName,
    Digester,
    Plan,
    Ranking,
    in_turns,
    mix_rankings,
    select,
    spread,
)
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.state import CrashState, Draw, landable, make_state

# Places at which a longer batch is split to hide what is open.
_HIDDEN_MAX = 16
# The turns of the families: three in five for subsets of the batch, one each for FUA writes and what landed ahead.
_MIX = (0, 1, 0, 2, 0)
DRAW_PERCENTS = (50, 75, 25, 90, 10)


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget, *, contents: Digester | None = None) -> Plan:
    """Plan the crash states of a power cut within a budget; deterministic. `contents` as in `select`."""
    alike = phases(log, [epoch for epoch in log_epochs if epoch.end > budget.first_entry])
    batches = Batches(alike, budget.seed)

    def rank(epoch: Epoch) -> Ranking:
        subsets = batches.before_flush(epoch)
        if not epoch.open_sectors:
            flying = _ahead(epoch, budget.seed)
            ranked = batches.mix(epoch, subsets.states, after_fuas(epoch), flying.states)
            return Ranking(ranked, subsets.exhaustive and flying.exhaustive, batches.halves(epoch))
        known = () if epoch.doubtful else in_turns(subsets.states, after_fuas(epoch))
        is_exhaustive = subsets.exhaustive and is_small(len(epoch.batch))
        return Ranking(in_turns(known, _states_behind_others(epoch, budget.seed)), is_exhaustive)

    return select(log, log_epochs, rank, budget, alike=alike, need=_need, contents=contents, cuts_doubtful=True)


def _need(write_count: int) -> float:
    """Return with about how many states all pairs of a phase are parted; few epochs have all families."""
    return 1.25 * (1 + _cover_size(write_count))


def _cover_size(write_count: int) -> int:
    return len(pair_cover(min(write_count, LISTED_MEMBERS_MAX), random.Random(1)))


def pairs_at(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> int:
    """Return how many ordered pairs of writes about as many states as the budget has would try."""
    planned = states(log, log_epochs, budget, contents=ByName())
    reached = [epoch for epoch in log_epochs if epoch.end > budget.first_entry]
    return sum(coverage.pair_count for coverage in pair_coverage(log, reached, planned.chosen))


class Batches:
    """What the epochs of each phase share: an agenda of subsets, and which family of states comes next."""

    def __init__(self, alike: Sequence[Phase], seed: int) -> None:
        self._seed = seed
        self._turns: dict[int, Turns[Choice]] = {}
        self._mixes: dict[int, Iterator[int]] = {}
        self._covers: dict[int, Iterator[tuple[int, ...]]] = {}
        for phase in alike:
            chance = random.Random(f"phase {seed}/{phase.text}")
            turns, mix = Turns(agenda(len(phase.roles), chance)), cycle(_MIX)
            covers = _covers(min(len(phase.roles), LISTED_MEMBERS_MAX), chance)
            for epoch in phase.epochs:
                self._turns[epoch.number] = turns
                self._mixes[epoch.number] = mix
                self._covers[epoch.number] = covers

    def before_flush(self, epoch: Epoch) -> Ranking:
        """Return family (b), the cut just before the closing FLUSH: all subsets of a small batch, else endless."""
        members = landable(epoch)
        if epoch.number not in self._turns:
            return Ranking(_in_order(epoch, len(epoch.fuas), members, self._seed), is_small(len(members)))
        choices = self._turns[epoch.number].of_one_epoch()
        return Ranking(_states_of_choices(epoch, len(epoch.fuas), members, choices, self._seed), is_small(len(members)))

    def halves(self, epoch: Epoch) -> Iterator[CrashState]:
        """Yield a few states before the closing FLUSH in which about half of the batch landed."""
        members, generator = landable(epoch), _chance("halves", epoch, self._seed)
        for ranks in islice(self._covers.get(epoch.number, ()), _cover_size(len(members))):
            if len(members) > LISTED_MEMBERS_MAX:
                yield _state_of_draw(epoch, len(epoch.fuas), members, Draw(generator.getrandbits(64), DRAW_PERCENTS[0]))
            else:
                yield _state_with(epoch, len(epoch.fuas), [members[rank] for rank in ranks])

    def mix(self, epoch: Epoch, *families: Iterable[CrashState]) -> Iterator[CrashState]:
        """Yield the states of all families, each from the family whose turn it is in the phase of this epoch."""
        return mix_rankings(self._mixes.get(epoch.number) or cycle(_MIX), families)


def _ahead(epoch: Epoch, seed: int) -> Ranking:
    """Return family (d): what landed ahead of each FUA write, and of the closing FLUSH together with the batch."""
    rankings = []
    for fua_count in spread(len(epoch.ahead)):
        # If the FUA write of the cut itself landed, the next cut has the same content and has seen more.
        members = tuple(entry for entry in epoch.ahead[fua_count] if entry not in epoch.fuas[fua_count : fua_count + 1])
        if members and fua_count == len(epoch.fuas):
            members = tuple(sorted((*members, *landable(epoch))))
        if members:
            rankings.append(Ranking(_in_order(epoch, fua_count, members, seed), is_small(len(members))))
    return Ranking(in_turns(*(ranking.states for ranking in rankings)), all(ranking.exhaustive for ranking in rankings))


def after_fuas(epoch: Epoch) -> Iterator[CrashState]:
    """Yield family (a): the cut before the first FUA write and after each one but the last, where (b) begins."""
    for fua_count in spread(len(epoch.fuas)):
        yield make_state(epoch, fua_count)


def _states_behind_others(epoch: Epoch, seed: int) -> Iterator[CrashState]:
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


def _covers(count: int, chance: random.Random) -> Iterator[tuple[int, ...]]:
    """Yield halves of a batch of at least two members without end; each few of them part all pairs."""
    while True:
        yield from pair_cover(count, chance)


def _chance(what: str, epoch: Epoch, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}/{epoch.begin}")


def _in_order(epoch: Epoch, fua_count: int, members: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield the states of an epoch that shares its choices with no other."""
    return _states_of_choices(epoch, fua_count, members, agenda(len(members), _chance("subsets", epoch, seed)), seed)


def _states_of_choices(
    epoch: Epoch, fua_count: int, members: tuple[int, ...], choices: Iterable[Choice], seed: int
) -> Iterator[CrashState]:
    """Yield the states of these choices; for a long batch seeded draws follow without end."""
    random_draws = draws(epoch, seed)
    for choice in choices:
        if choice is None:
            yield _state_of_draw(epoch, fua_count, members, next(random_draws))
        else:
            yield _state_with(epoch, fua_count, [members[rank] for ranks in choice for rank in ranks])
    if not is_small(len(members)):
        for draw in random_draws:
            yield _state_of_draw(epoch, fua_count, members, draw)


def _state_with(epoch: Epoch, fua_count: int, members: Sequence[int]) -> CrashState:
    """Return the state in which these writes landed; they are members of the batch or ahead of the cut."""
    ahead = [entry for entry in members if entry in epoch.ahead_at(fua_count)]
    return make_state(epoch, fua_count, whole=(entry for entry in members if entry not in ahead), ahead=ahead)


def _state_of_draw(epoch: Epoch, fua_count: int, members: tuple[int, ...], draw: Draw) -> CrashState:
    # Before the last FUA write the whole batch may have landed ahead of the cut, and an id has no draw for that.
    if len(members) > LISTED_MEMBERS_MAX and fua_count == len(epoch.fuas) and members == landable(epoch):
        return make_state(epoch, fua_count, draw=draw)
    landed = draw.choose(len(members)).tolist()
    # The id of a long list would be too long, so only its beginning is drawn.
    chosen = [member for member, has_landed in zip(members, landed, strict=True) if has_landed]
    return _state_with(epoch, fua_count, chosen[:LISTED_MEMBERS_MAX])
