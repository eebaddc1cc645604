"""Torn writes on an honest disk: what was not flushed may have reached the medium in part.

Model: the disk of `rig.faults.models.powercut`, but only units of 512 or of 4096 bytes, aligned on the device, are
written atomically, whatever the device claims; of a longer write that was not flushed any set of units may land. Both
families of `rig.faults.models.powercut` are torn:

(a) A cut just before FUA_j completes: everything before the epoch, the FUA writes before it whole, none of the batch,
    and any set of units of FUA_j itself. Legal because FUA_j had been submitted (the log holds it, and at that
    instant only its completion is missing) and any part of a write in flight may have reached the medium.
(b) A cut just before the closing FLUSH completes, or at the end of the log for the tail: everything before the epoch,
    all its FUA writes whole, and for each unit of the batch any of its versions: the one from before the batch, or
    the one of any write of the batch. Legal because the cache holds units and may have written back each of them at
    any time.

Where it is known when writes were submitted, the writes ahead of a cut are torn as well (`Epoch.ahead`).

Which tears come first is one agenda for alike epochs (`rig.faults.choosing.tearings`): each write torn alone, in both
directions, with all others landed and with none; then pairs, boundaries, and draws. Torn FUA writes and torn writes
ahead take turns with it. If a write is longer than 4096 bytes, so do two more kinds, for each block of 4096 of it:

- shorn writes, one for each count of 1 to 7 sectors. The block's first sectors are new and its rest old; the blocks
  before it are new and the blocks after it old;
- tails: old up to this block, new from it on. If one long write overwrites a log from its beginning, this leaves a new
  end after an old beginning. (In the log of a recording the blocks of a long write are entries of their own, and a tail
  is a power cut without a tear.)

Every unit of 4096 is made of units of 512, so an epoch enumerated at 512 is exhausted at both sizes. When sampled, the
two sizes take turns, if a write has several units of 4096. States without a tear are legal here too. Only an epoch that
is enumerated has them, and last, because a power cut checks them.

Left out: what `rig.faults.models.powercut` leaves out; garbage in place of a unit (`rig.faults.models.shorn`) and
changes outside the written range (not the work of an honest disk); tears of several writes at two unit sizes at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle

from rig.faults.choosing.agenda import Turns
from rig.faults.choosing.phases import phases
from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, mix_rankings, select, spread
from rig.faults.choosing.tearings import Tearing, tearings
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import changed_sectors
from rig.faults.log.log import WriteLog
from rig.faults.models.powercut import after_fuas, draws
from rig.faults.states.damage import block_rests
from rig.faults.states.state import UNIT_BYTES, CrashState, Tear, landable, make_state, unit_count

# More units than this in one batch or one FUA write are sampled: 8 units of 512 are one page.
UNITS_LISTED_MAX = 8
# A longer batch weighs as much as one with this many writes.
_NEED_WRITES_MAX = 8
# The share of plain tears in the middle of what the write changes.
_MIDDLE_SHARE = 1 / 2
# The turns of the families: the batch, FUA writes, writes ahead, tails, shorn writes; the last two need long writes.
_MIX, _LONG_MIX = (0, 1, 0, 0, 2, 0), (0, 3, 1, 4, 2)


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan crash states with torn writes, within a budget; deterministic."""
    alike = phases(log, [epoch for epoch in log_epochs if epoch.end > budget.first_entry])
    shared: dict[int, _Agenda] = {}
    for phase in alike:
        agenda = _Agenda.of(log, phase.epochs, random.Random(f"tears {budget.seed}/{phase.text}"))
        shared.update((epoch.number, agenda) for epoch in phase.epochs)

    def rank(epoch: Epoch) -> Ranking:
        members = landable(epoch)
        is_small = sum(unit_count(log, member, 512) for member in members) <= UNITS_LISTED_MAX
        fuas_small = all(unit_count(log, fua, 512) <= UNITS_LISTED_MAX for fua in epoch.fuas)
        own = shared.get(epoch.number) or _Agenda.of(log, [epoch], random.Random(f"tears {budget.seed}/{epoch.begin}"))
        places = random.Random(f"places of tears {budget.seed}/{epoch.begin}")
        batch = _batch(log, epoch, own.turns.of_one_epoch(), None if is_small else budget.seed, places)
        families = batch, _torn_fuas(log, epoch), _torn_ahead(log, epoch), _tails(log, epoch), _shorn(log, epoch)
        ranked = chain(mix_rankings(own.mix, families), _untorn(epoch))
        return Ranking(ranked, is_small and fuas_small and not any(epoch.ahead))

    return select(log, log_epochs, rank, budget, alike=alike, need=_need)


def _need(write_count: int) -> float:
    """Return how many states have each write of a phase torn with all others and with none, and draws in between."""
    return 4 * min(write_count, _NEED_WRITES_MAX)


def _untorn(epoch: Epoch) -> Iterator[CrashState]:
    yield make_state(epoch, len(epoch.fuas))
    yield from after_fuas(epoch)


def _torn_fuas(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield family (a): each FUA write torn while in flight; the writes take turns."""
    return in_turns(*(_torn_fua(log, epoch, rank) for rank in spread(len(epoch.fuas))))


def _torn_fua(log: WriteLog, epoch: Epoch, rank: int) -> Iterator[CrashState]:
    for tear in _tears(log, epoch.fuas[rank]):
        yield make_state(epoch, rank, tears=(tear,))


def _torn_ahead(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield each write that may have landed ahead of a cut, torn; with those before it, or alone."""
    for fua_count in spread(len(epoch.ahead)):
        members = epoch.ahead[fua_count]
        for rank in spread(len(members)):
            for number, tear in enumerate(_tears(log, members[rank])):
                # If the FUA write of the cut itself landed whole, the next cut has seen more.
                before = [entry for entry in members[:rank] if entry not in epoch.fuas[fua_count : fua_count + 1]]
                yield make_state(epoch, fua_count, ahead=before if (number + rank) % 2 else (), tears=(tear,))


def _tears(log: WriteLog, entry: int) -> Iterator[Tear]:
    """Yield the tears of one write, halves and ends first: all tears of a small write, otherwise telling ones."""
    count = unit_count(log, entry, 512)
    for unit_bytes in reversed(UNIT_BYTES):
        units = tuple(range(unit_count(log, entry, unit_bytes)))
        half = len(units) // 2
        choices = (units[:half], units[half:], units[:1], units[1:], units[:-1], units[-1:], units[::2], units[1::2])
        for chosen in dict.fromkeys(choices):
            if 0 < len(chosen) < len(units):
                yield Tear(entry, unit_bytes, chosen)
    yield from _shears(log, entry)
    if count <= UNITS_LISTED_MAX:
        masks = range(1, 2**count - 1)
        for rank in spread(len(masks)):
            yield Tear(entry, 512, tuple(unit for unit in range(count) if masks[rank] >> unit & 1))


def _shears(log: WriteLog, entry: int) -> Iterator[Tear]:
    rests = block_rests(log, entry)
    for rank in spread(len(rests)):
        yield Tear(entry, 512, tuple(range(rests[rank][0])))


def _shorn(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield every long member shorn at every place; members take turns, the others are absent or present up to it."""
    members = landable(epoch)
    return in_turns(*(_shorn_member(log, epoch, rank) for rank in spread(len(members)) if _is_long(log, members[rank])))


def _shorn_member(log: WriteLog, epoch: Epoch, rank: int) -> Iterator[CrashState]:
    members = landable(epoch)
    for number, tear in enumerate(_shears(log, members[rank])):
        whole = members[:rank] if (number + rank) % 2 else ()
        yield make_state(epoch, len(epoch.fuas), whole=whole, tears=(tear,))


def _tails(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield ends of every long member, later members absent or present; members take turns."""
    return in_turns(*(_tails_of_member(log, epoch, rank) for rank in spread(len(landable(epoch)))))


def _tails_of_member(log: WriteLog, epoch: Epoch, rank: int) -> Iterator[CrashState]:
    members = landable(epoch)
    units = tuple(range(unit_count(log, members[rank], 4096)))
    # First the last block alone, then all but the first, then those in between.
    begins = dict.fromkeys((len(units) - 1, 1, *(begin + 1 for begin in spread(len(units) - 1))))
    for number, begin in enumerate(begins if len(units) > 1 else ()):
        whole = members[rank + 1 :] if (number + rank) % 2 else ()
        yield make_state(epoch, len(epoch.fuas), whole=whole, tears=(Tear(members[rank], 4096, units[begin:]),))


def _is_long(log: WriteLog, entry: int) -> bool:
    return unit_count(log, entry, 4096) > 1


def _all_choices(log: WriteLog, epoch: Epoch, members: Sequence[int]) -> Iterator[CrashState]:
    """Yield every non-empty choice of units of a small batch, in a spread order."""
    places = [(member, unit) for member in members for unit in range(unit_count(log, member, 512))]
    _empty, *masks = spread(2 ** len(places))
    for mask in masks:
        landed = [place for rank, place in enumerate(places) if mask >> rank & 1]
        yield _state_of_units(log, epoch, landed)


def _state_of_units(log: WriteLog, epoch: Epoch, landed: Iterable[tuple[int, int]]) -> CrashState:
    units: dict[int, list[int]] = {}
    for member, unit in landed:
        units.setdefault(member, []).append(unit)
    whole = [member for member, chosen in units.items() if len(chosen) == unit_count(log, member, 512)]
    tears = [Tear(member, 512, tuple(chosen)) for member, chosen in units.items() if member not in whole]
    return make_state(epoch, len(epoch.fuas), whole=whole, tears=tears)


def _batch(
    log: WriteLog, epoch: Epoch, choices: Iterator[Tearing | None], seed: int | None, places: random.Random
) -> Iterator[CrashState]:
    """Yield the tears on the agenda, then all choices of a small batch, or draws without end if there is a seed."""
    members, fua_count = landable(epoch), len(epoch.fuas)
    units = [512, 4096] if any(_is_long(log, member) for member in members) else [512]
    random_draws = in_turns(*(draws(epoch, seed, unit_bytes) for unit_bytes in units)) if seed is not None else iter(())
    for choice in choices:
        if choice:
            yield from _state_of(log, epoch, choice, places)
        elif draw := next(random_draws, None):
            yield make_state(epoch, fua_count, draw=draw)
    if seed is None:
        yield from _all_choices(log, epoch, members)
    for draw in random_draws:
        yield make_state(epoch, fua_count, draw=draw)


def _state_of(log: WriteLog, epoch: Epoch, choice: Tearing, places: random.Random) -> Iterator[CrashState]:
    """Yield the state of a choice, or none if a write has no boundary there."""
    members, tears = landable(epoch), []
    for half in choice.halves:
        entry = members[half.rank]
        # Half of a long write is whole blocks.
        unit_bytes = 4096 if _is_long(log, entry) and not half.sector_count else 512
        count = unit_count(log, entry, unit_bytes)
        at = half.sector_count or (count // 2 if unit_bytes == 4096 else _place(log, epoch, entry, count, places))
        if not 0 < at < count:
            return
        tears.append(Tear(entry, unit_bytes, tuple(range(at, count) if half.is_end else range(at))))
    whole = (members[rank] for part in choice.whole for rank in part)
    yield make_state(epoch, len(epoch.fuas), whole=whole, tears=tears)


def _place(log: WriteLog, epoch: Epoch, entry: int, count: int, places: random.Random) -> int:
    """Return the sector before which a write is torn, so that each part shows; half of these are in the middle.

    A checksum may cover only a part of what is written, and alike epochs are torn at other places.
    """
    changed = changed_sectors(log, entry, epoch.begin)
    if len(changed) < 2:
        return count // 2
    in_the_middle = places.random() < _MIDDLE_SHARE
    return changed[len(changed) // 2 if in_the_middle else places.randrange(1, len(changed))]


@dataclass(frozen=True)
class _Agenda:
    """What alike epochs share: the tears of their batches, and which family of states comes next."""

    turns: Turns[Tearing | None]
    mix: Iterator[int]

    @classmethod
    def of(cls, log: WriteLog, log_epochs: Sequence[Epoch], chance: random.Random) -> _Agenda:
        batches = [landable(epoch) for epoch in log_epochs]
        is_long = any(_is_long(log, member) for members in batches for member in members)
        return cls(Turns(tearings(len(batches[0]), chance)), cycle(_LONG_MIX if is_long else _MIX))
