"""Which choices of writes, and which tears, the states of a plan have tried, phase by phase.

For each phase (`rig.faults.choosing.phases`) with n writes there are n * (n - 1) ordered pairs: this write landed, that
one did not. A write that changes nothing is left out, because no state tells whether it landed. A pair is tried if some
state of an alike epoch has it so, at the cut before the closing FLUSH. Likewise every write may be lost alone, or land
alone. States of other cuts, torn states and damaged states do not count.

A write that changes at least two sectors has two plain tears: its beginning landed and its end did not, or the other
way round, while all other writes landed; and the same while none did. A tear is tried if some state of an alike epoch
has it and no other tear, at the same cut. Draws of sectors do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.faults.choosing.phases import Phase, phases
from rig.faults.log.arrays import BoolArray
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import changed_sectors, overlaps
from rig.faults.log.log import SECTOR_BYTES, WriteLog
from rig.faults.states.state import CrashState, landable, unit_count

# Rows of the table of pairs that are made at a time.
_ROWS = 1024
_TEARS_OF_A_WRITE = 2
# The most writes of an epoch that are read to find what they change.
_LOOKED_AT_MAX = 32


@dataclass(frozen=True)
class Tried:
    """What was tried of one phase."""

    phase: Phase
    # Writes that change something.
    write_count: int
    pair_count: int
    lost_alone_count: int
    landed_alone_count: int
    # States whose cut lies in an epoch of the phase, of any kind.
    state_count: int = 0
    tear_count: int = 0
    tears_tried: int = 0


def pair_coverage(log: WriteLog, log_epochs: Sequence[Epoch], states: Iterable[CrashState]) -> list[Tried]:
    """Return what these states of one log have tried of each phase of these epochs, phases with most epochs first."""
    by_epoch: dict[int, list[CrashState]] = {}
    for state in states:
        by_epoch.setdefault(state.epoch.number, []).append(state)
    coverages = []
    for phase in phases(log, log_epochs):
        own = [state for epoch in phase.epochs for state in by_epoch.get(epoch.number, ())]
        choices = [landed for state in own if (landed := _landings(state)) is not None]
        telling, tearable = _telling(log, phase)
        counts = _coverage_of(phase, np.array(choices, dtype=bool).reshape(len(choices), len(phase.roles))[:, telling])
        tears = {tear for state in own for tear in _plain_tears(log, state) if tear[0] in tearable}
        coverages.append(
            replace(counts, state_count=len(own), tear_count=_TEARS_OF_A_WRITE * len(tearable), tears_tried=len(tears))
        )
    return coverages


def _landings(state: CrashState) -> BoolArray | None:
    """Return whether each member of the batch landed; None for a state that does not count."""
    epoch = state.epoch
    is_torn = state.tears or (state.draw and state.draw.unit_bytes)
    if is_torn or state.window or state.damages or state.fua_count != len(epoch.fuas):
        return None
    members = landable(epoch)
    return state.draw.choose(len(members)) if state.draw else np.isin(members, (*state.whole, *state.ahead))


def _plain_tears(log: WriteLog, state: CrashState) -> Iterator[tuple[int, bool]]:
    """Yield the plain tears of a state: the rank of the write, and whether all other writes landed or none."""
    epoch = state.epoch
    members = landable(epoch)
    is_plain = not (state.draw or state.ahead or state.window or state.damages)
    if not is_plain or len(state.tears) != 1 or state.fua_count != len(epoch.fuas):
        return
    (tear,) = state.tears
    if tear.entry_index not in members or len(state.whole) not in (0, len(members) - 1):
        return
    last = unit_count(log, tear.entry_index, tear.unit_bytes) - 1
    if (0 in tear.units) is not (last in tear.units):
        rank = members.index(tear.entry_index)
        # A write without others is torn with all of them and with none.
        for is_landed in {len(state.whole) > 0, len(state.whole) == len(members) - 1}:
            yield rank, is_landed


def _telling(log: WriteLog, phase: Phase) -> tuple[list[int], set[int]]:
    """Return the ranks of the writes that change something in an epoch of the phase, and of those that can be torn.

    In a long batch nothing is read, and every write counts. So does a discard, and a write that touches another one. A
    write that can be torn changes at least two sectors.
    """
    telling, tearable = set(), set()
    for epoch in phase.epochs:
        members = landable(epoch)
        is_long = len(members) > _LOOKED_AT_MAX
        for rank, entry in enumerate(members):
            sectors = unit_count(log, entry, SECTOR_BYTES)
            if rank in telling and (sectors < 2 or rank in tearable):
                continue
            changed = sectors if is_long else len(changed_sectors(log, entry, epoch.begin))
            others = [*members[:rank], *members[rank + 1 :], *epoch.fuas]
            place = int(log.offset_bytes[entry]), int(log.payload_bytes[entry])
            if changed or not place[1] or overlaps(log, others, *place):
                telling.add(rank)
            if sectors > 1 and changed > 1:
                tearable.add(rank)
    return sorted(telling), tearable


def _coverage_of(phase: Phase, choices: BoolArray) -> Tried:
    landed = choices.astype(np.float32)
    count = landed.shape[1]
    parted = sum(
        np.count_nonzero(landed[:, begin : begin + _ROWS].T @ (1 - landed)) for begin in range(0, count, _ROWS)
    )
    sizes = choices.sum(axis=1)
    lost = (~choices[sizes == count - 1]).any(axis=0)
    alone = choices[sizes == 1].any(axis=0)
    return Tried(phase, count, int(parted), int(lost.sum()), int(alone.sum()))
