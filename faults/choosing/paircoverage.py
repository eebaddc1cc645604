"""Which choices of writes the states of a plan have tried, phase by phase.

For each phase (`rig.faults.choosing.phases`) with n writes there are n * (n - 1) ordered pairs: this write landed, that
one did not. A pair is tried if some state of an alike epoch has it so, at the cut before the closing FLUSH. Likewise
every write may be lost alone, or land alone. States of other cuts, torn states and damaged states do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rig.faults.choosing.phases import Phase, phases
from rig.faults.log.arrays import BoolArray
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.state import CrashState, landable

# Rows of the table of pairs that are made at a time.
_ROWS = 1024


@dataclass(frozen=True)
class Tried:
    """What was tried of one phase."""

    phase: Phase
    pair_count: int
    lost_alone_count: int
    landed_alone_count: int


def tried(log: WriteLog, log_epochs: Sequence[Epoch], states: Iterable[CrashState]) -> list[Tried]:
    """Return what these states of one log have tried of each phase of these epochs, phases with most epochs first."""
    choices: dict[int, list[BoolArray]] = {}
    for state in states:
        if (landed := _landed(state)) is not None:
            choices.setdefault(state.epoch.number, []).append(landed)
    found = []
    for phase in phases(log, log_epochs):
        own = [choice for epoch in phase.epochs for choice in choices.get(epoch.number, ())]
        found.append(_tried(phase, np.array(own, dtype=bool).reshape(len(own), len(phase.roles))))
    return found


def _landed(state: CrashState) -> BoolArray | None:
    """Return whether each member of the batch landed; None for a state that does not count."""
    epoch = state.epoch
    is_torn = state.tears or (state.draw and state.draw.unit_bytes)
    if is_torn or state.window or state.damages or state.fua_count != len(epoch.fuas):
        return None
    members = landable(epoch)
    return state.draw.choose(len(members)) if state.draw else np.isin(members, (*state.whole, *state.ahead))


def _tried(phase: Phase, choices: BoolArray) -> Tried:
    landed = choices.astype(np.float32)
    count = landed.shape[1]
    parted = sum(
        np.count_nonzero(landed[:, begin : begin + _ROWS].T @ (1 - landed)) for begin in range(0, count, _ROWS)
    )
    sizes = choices.sum(axis=1)
    lost = (~choices[sizes == count - 1]).any(axis=0)
    alone = choices[sizes == 1].any(axis=0)
    return Tried(phase, int(parted), int(lost.sum()), int(alone.sum()))
