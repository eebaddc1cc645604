"""Late and lost discards on an honest disk.

Model: a DISCARD is a hint. Until a sector is written again, a disk may show its old content, as if the hint had never
come, or zeros, from the completion of the DISCARD or any later time on, each sector by itself. Later writes are
unaffected. A state is a state of `rig.faults.models.powercut` in which, in addition, units of the ranges of any set of
completed DISCARDs read zeros:

(a) A cut just after FUA_j: DISCARDs of earlier epochs only, since the log does not tell whether one of this epoch had
    completed by then.
(b) A cut just before the closing FLUSH completes: DISCARDs of this epoch too.

Legal because a disk does not promise the content of a discarded range, and because every sector is left alone on
which a write has landed that may have come after the DISCARD. If such a write was lost, its sectors are what the
DISCARD left there: old content or zeros. These writes may have come after it: all that the log has later, and the FUA
writes of its epoch and the one before, whose order to it the log does not tell. If two FLUSHes were in flight together,
so may writes that the log has earlier; an account of submissions shows that. Without an account one FLUSH at a time is
assumed. A write that completed before the DISCARD is taken to have been carried out before it: no file system discards
a block with a write of it in flight. States in which every discard was lost belong to `rig.faults.models.powercut`.
Only their corners are made here, and last: all of the batch, and none of it.

A range takes effect in units of 4096 bytes, or of 512 where it is not aligned. Few units are enumerated; of many the
first half, the second half, beginnings, ends and seeded draws are made.

Left out: a DISCARD of sectors that were never written, because a disk begins with zeros; content that is neither old
nor zeros; all but the newest DISCARDs, sixteen in one state. A recording holds DISCARDs only if its file system sends
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TypeVar

import numpy as np

from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import overlaps
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog
from rig.faults.states.damage import BLOCK_BYTES, Discarded, discard_unit_count
from rig.faults.states.state import CrashState, landable, make_state

_T = TypeVar("_T")

DISCARDS_MAX = 16
# Every set of this many writes and units of DISCARDs is made.
_LISTED_MAX = 8
# Parts of each DISCARD that are listed: before the closing FLUSH, and after a FUA write.
_PARTS_LISTED, _PARTS_AFTER_FUA = 34, 4
# The places, evenly spaced, at which a DISCARD is parted.
_PARTS = 16
# A drawn part has up to half as many stretches.
_DRAWN_BOUNDS = 8


def states(log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan:
    """Plan states with discards that took effect, within a budget; deterministic."""
    discards = np.array([entry for entry in np.flatnonzero(log.flags & EntryFlag.DISCARD).tolist() if _had(log, entry)])

    def rank(epoch: Epoch) -> Ranking:
        late = tuple(discards[discards < epoch.end][-DISCARDS_MAX:].tolist())
        early = tuple(discards[discards < epoch.begin][-DISCARDS_MAX:].tolist())
        members = landable(epoch)
        is_small = len(discards) <= DISCARDS_MAX and len(members) + len(_units(log, late)) <= _LISTED_MAX
        chance = random.Random(f"{budget.seed}/{epoch.begin}/discard")
        after_flush = _all_choices(log, epoch, members, late) if is_small else _samples(log, epoch, late, chance)
        taken = in_turns(after_flush, _after_fuas(log, epoch, early))
        return Ranking(
            chain(taken, _all_or_none(epoch)) if is_small or not late else in_turns(taken, _all_or_none(epoch)),
            is_small,
        )

    return select(log, log_epochs, rank, budget)


def _had(log: WriteLog, discard: int) -> bool:
    """Return whether a DISCARD covers anything written before; a recording begins with a disk of zeros."""
    return overlaps(log, range(discard), int(log.offset_bytes[discard]), int(log.length_bytes[discard]))


def _unit_bytes(log: WriteLog, discard: int) -> int:
    is_aligned = not (log.offset_bytes[discard] % BLOCK_BYTES or log.length_bytes[discard] % BLOCK_BYTES)
    return BLOCK_BYTES if is_aligned else SECTOR_BYTES


def _units(log: WriteLog, discards: Sequence[int]) -> list[tuple[int, int]]:
    """Return every unit of some DISCARDs: (entry, unit); of more than can be listed only some."""
    every_unit = (
        (entry, unit) for entry in discards for unit in range(discard_unit_count(log, entry, _unit_bytes(log, entry)))
    )
    return list(islice(every_unit, _LISTED_MAX + 1))


def _state(
    log: WriteLog, epoch: Epoch, fua_count: int, whole: Sequence[int], units: Sequence[tuple[int, int]]
) -> CrashState:
    """Return the state in which these writes landed and these units read zeros."""
    damages = tuple(
        Discarded(entry, _unit_bytes(log, entry), _runs([unit for _, unit in own]))
        for entry, own in groupby(units, key=lambda unit: unit[0])
    )
    return make_state(epoch, fua_count, whole=whole, damages=damages)


def _runs(units: Sequence[int]) -> tuple[range, ...]:
    begins = [unit for unit in units if unit - 1 not in units]
    return tuple(
        range(begin, end + 1) for begin, end in zip(begins, (u for u in units if u + 1 not in units), strict=True)
    )


def _subsets(items: Sequence[_T]) -> list[list[_T]]:
    return [[item for rank, item in enumerate(items) if mask >> rank & 1] for mask in range(2 ** len(items))]


def _all_choices(log: WriteLog, epoch: Epoch, members: Sequence[int], discards: Sequence[int]) -> Iterator[CrashState]:
    """Yield every set of writes with every non-empty set of units."""
    choices = [(whole, late) for whole in _subsets(members) for late in _subsets(_units(log, discards))[1:]]
    for rank in spread(len(choices)):
        yield _state(log, epoch, len(epoch.fuas), *choices[rank])


def _after_fuas(log: WriteLog, epoch: Epoch, discards: tuple[int, ...]) -> Iterator[CrashState]:
    """Yield cuts after FUA writes with every set of few units, or with all discards, each alone, and each in part."""
    for fua_count in spread(len(epoch.fuas)):
        if len(_units(log, discards)) <= _LISTED_MAX:
            for late in _subsets(_units(log, discards))[1:]:
                yield _state(log, epoch, fua_count, (), late)
            continue
        yield make_state(epoch, fua_count, damages=tuple(Discarded(entry) for entry in discards))
        for entry in discards:
            for damage in islice(_parts(log, entry), _PARTS_AFTER_FUA):
                yield make_state(epoch, fua_count, damages=(damage,))


def _all_or_none(epoch: Epoch) -> Iterator[CrashState]:
    yield make_state(epoch, len(epoch.fuas), whole=landable(epoch))
    yield make_state(epoch, len(epoch.fuas))


def _parts(log: WriteLog, discard: int) -> Iterator[Discarded]:
    """Yield a DISCARD that took effect as a whole, in each half, and up to or from a few places."""
    unit_bytes = _unit_bytes(log, discard)
    count = discard_unit_count(log, discard, unit_bytes)
    yield Discarded(discard)
    yield Discarded(discard, unit_bytes, (range(count),))
    for at in dict.fromkeys(count * part // _PARTS for part in (_PARTS // 2, *spread(_PARTS))):
        if 0 < at < count:
            yield Discarded(discard, unit_bytes, (range(at),))
            yield Discarded(discard, unit_bytes, (range(at, count),))


def _samples(log: WriteLog, epoch: Epoch, discards: tuple[int, ...], chance: random.Random) -> Iterator[CrashState]:
    """Yield all discards over all writes and over none, each discard alone and in part, then draws of all; endless."""
    if not discards:
        return
    members, fua_count = landable(epoch), len(epoch.fuas)
    for whole in (members, ()):
        yield make_state(epoch, fua_count, whole=whole, damages=tuple(Discarded(entry) for entry in discards))
    parts = [_parts(log, discards[rank]) for rank in spread(len(discards))]
    for damage in in_turns(*(islice(own, _PARTS_LISTED) for own in parts)):
        for whole in (members, ()):
            yield make_state(epoch, fua_count, whole=whole, damages=(damage,))
    while True:
        whole = tuple(member for member in members if chance.random() < 0.5)
        late = tuple(_drawn_part(log, entry, chance) for entry in discards if chance.random() < 0.5)
        if late:
            yield make_state(epoch, fua_count, whole=whole, damages=late)


def _drawn_part(log: WriteLog, discard: int, chance: random.Random) -> Discarded:
    """Return a DISCARD that took effect as a whole, or in a few drawn stretches of its units."""
    unit_bytes = _unit_bytes(log, discard)
    count = discard_unit_count(log, discard, unit_bytes)
    if count == 1 or chance.random() < 0.5:
        return Discarded(discard, unit_bytes, (range(count),))
    bounds = sorted(chance.sample(range(count + 1), min(count + 1, _DRAWN_BOUNDS) // 2 * 2))
    return Discarded(discard, unit_bytes, tuple(range(*pair) for pair in zip(bounds[::2], bounds[1::2], strict=True)))
