"""Late and lost discards on an honest disk.

Model: a DISCARD is a hint. Until a sector is written again, a disk may show its old content, as if the hint had never
come, or zeros, from the completion of the DISCARD or any later time on. Later writes are unaffected. A state is a state
of `rig.faults.models.powercut` in which, in addition, the ranges of any set of completed DISCARDs read zeros:

(a) A cut just after FUA_j: DISCARDs of earlier epochs only, since the log does not tell whether one of this epoch had
    completed by then.
(b) A cut just before the closing FLUSH completes: DISCARDs of this epoch too.

Legal because a disk does not promise the content of a discarded range, and because every sector that a write may have
taken after the DISCARD is left alone: all later writes in the log, landed or not, and the FUA writes of its epoch and
the one before, whose order to it the log does not tell. States in which every discard was lost belong to
`rig.faults.models.powercut`. Only their corners are made here, and last: all of the batch, and none of it.

Left out: a DISCARD of sectors that were never written, because a disk begins with zeros; a DISCARD that takes effect in
only some of its sectors; content that is neither old nor zeros; all but the newest DISCARDs, sixteen in one state. A
recording holds DISCARDs only if its file system sends them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from rig.faults.choosing.agenda import SUBSETS_MAX
from rig.faults.choosing.selection import Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import overlaps
from rig.faults.log.log import EntryFlag, WriteLog
from rig.faults.states.damage import Discarded
from rig.faults.states.state import CrashState, landable, make_state

DISCARDS_MAX = 16


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan states with discards that took effect, at instants after `first_entry`; deterministic under `seed`."""
    discards = np.array([entry for entry in np.flatnonzero(log.flags & EntryFlag.DISCARD).tolist() if _had(log, entry)])

    def rank(epoch: Epoch) -> Ranking:
        late = tuple(discards[discards < epoch.end][-DISCARDS_MAX:].tolist())
        early = tuple(discards[discards < epoch.begin][-DISCARDS_MAX:].tolist())
        members = landable(epoch)
        is_small = len(discards) <= DISCARDS_MAX and 2 ** (len(members) + len(late)) <= SUBSETS_MAX
        after_flush = _all_choices(epoch, members, late) if is_small else _samples(epoch, members, late, seed)
        taken = in_turns(after_flush, _after_fuas(epoch, early))
        return Ranking(chain(taken, _lost(epoch)) if is_small or not late else in_turns(taken, _lost(epoch)), is_small)

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max)


def _had(log: WriteLog, discard: int) -> bool:
    """Return whether a DISCARD covers anything written before; a recording begins with a disk of zeros."""
    return overlaps(log, range(discard), int(log.offset_bytes[discard]), int(log.length_bytes[discard]))


def _state(epoch: Epoch, fua_count: int, whole: Sequence[int], discards: Sequence[int]) -> CrashState:
    damages = tuple(Discarded(entry) for entry in discards)
    return make_state(epoch, fua_count, whole=whole, damages=damages)


def _subsets(items: Sequence[int]) -> list[list[int]]:
    return [[item for rank, item in enumerate(items) if mask >> rank & 1] for mask in range(2 ** len(items))]


def _all_choices(epoch: Epoch, members: Sequence[int], discards: Sequence[int]) -> Iterator[CrashState]:
    """Yield every set of writes with every non-empty set of discards."""
    choices = [(whole, late) for whole in _subsets(members) for late in _subsets(discards)[1:]]
    for rank in spread(len(choices)):
        yield _state(epoch, len(epoch.fuas), *choices[rank])


def _after_fuas(epoch: Epoch, discards: tuple[int, ...]) -> Iterator[CrashState]:
    subsets = _subsets(discards)[1:] if 2 ** len(discards) <= SUBSETS_MAX else [discards, *([one] for one in discards)]
    for fua_count in spread(len(epoch.fuas)):
        for late in subsets:
            yield _state(epoch, fua_count, (), late)


def _lost(epoch: Epoch) -> Iterator[CrashState]:
    yield make_state(epoch, len(epoch.fuas), whole=landable(epoch))
    yield make_state(epoch, len(epoch.fuas))


def _samples(epoch: Epoch, members: tuple[int, ...], discards: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield all discards over all writes and over none, each discard alone, then seeded choices of both; endless."""
    if not discards:
        return
    fua_count = len(epoch.fuas)
    for whole in (members, ()):
        yield _state(epoch, fua_count, whole, discards)
    for rank in spread(len(discards)):
        for whole in (members, ()):
            yield _state(epoch, fua_count, whole, discards[rank : rank + 1])
    generator = random.Random(f"{seed}/{epoch.begin}/discard")
    while True:
        whole = tuple(member for member in members if generator.random() < 0.5)
        late = tuple(entry for entry in discards if generator.random() < 0.5)
        if late:
            yield _state(epoch, fua_count, whole, late)
