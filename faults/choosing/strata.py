"""Strata: the kinds of epochs among which a budget of crash states is shared out.

A bug that only one rare phase of a recording can show is found by no seed if each epoch gets the same number of states.
So the budget goes to kinds of epochs. The epochs of a stratum have one phase (`rig.faults.choosing.phases`). Long
batches are hardly ever alike: of these one stratum has all with the same roles and about the same number of writes.
Epochs that belong to no phase are parted by whether they have FUA writes. What comes before the first acknowledgement
is apart, because a database is made only once.

Each stratum has one turn before any has two. Then they take turns in proportion to their weights (stride scheduling).
The weight is the number of states that a fault model wants of one phase (`need`), times a factor that grows with the
logarithm of the number of epochs. So a phase that occurs a hundred times gets more states than one that occurs once,
but not a hundred times as many, and small phases that occur once are exhausted. A phase of at most `SMALL_WRITES_MAX`
writes weighs more until it has what is wanted of it. Strata before the first acknowledgement have at least
`EARLY_SHARE` of all weight.

The epochs of a stratum take turns in an order that the seed draws, spread over the recording (`draw_order`). An evenly
spaced choice would keep step with a program that works in periods, and see the same phases of every period.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2
from typing import TypeVar

from rig.faults.choosing.phases import Phase
from rig.faults.log.epoch import Epoch
from rig.faults.states.state import landable

_T = TypeVar("_T")

# The share of a budget for what comes before the first acknowledgement, as long as there are states.
EARLY_SHARE = 1 / 8
# Phases with no more writes come first until they have what the model wants of them.
SMALL_WRITES_MAX = 6
# Doublings of the number of epochs for which a stratum counts twice.
_DOUBLINGS = 4
# Batches with more writes share a stratum with others of about their length.
_ALIKE_WRITES_MAX = 48


@dataclass(frozen=True)
class Stratum:
    """Epochs of one kind, in the order in which they take turns."""

    epochs: tuple[Epoch, ...]
    weight: float
    # How many states it should have before larger ones go on; 0 if it is large itself.
    urgent_count: float = 0
    # Whether every cut of these epochs comes before the first acknowledgement.
    is_early: bool = False


def strata(
    log_epochs: Sequence[Epoch], known: Sequence[Phase], first_ack: int, seed: int, need: Callable[[int], float]
) -> list[Stratum]:
    """Return the strata of these epochs.

    `first_ack` is the entry of the first acknowledgement, 0 if there is none. `need` says how many states are wanted of
    a phase with a number of writes.
    """
    phase_of = {epoch.number: phase for phase in known for epoch in phase.epochs}
    alike: dict[object, list[Epoch]] = {}
    for epoch in log_epochs:
        key = epoch.end <= first_ack, _kind(epoch, phase_of.get(epoch.number))
        alike.setdefault(key, []).append(epoch)
    kinds = []
    for number, own in enumerate(alike.values()):
        chance = random.Random(f"stratum {seed}/{number}")
        write_count = max(len(landable(epoch)) for epoch in own)
        wanted = max(1.0, need(write_count))
        weight = wanted * (1 + log2(len(own)) / _DOUBLINGS)
        is_small = 0 < write_count <= SMALL_WRITES_MAX
        in_turn = tuple(draw_order(own, chance))
        kinds.append(Stratum(in_turn, weight, wanted if is_small else 0, own[0].end <= first_ack))
    early, late = (
        sum(stratum.weight for stratum in kinds if stratum.is_early is is_early) for is_early in (True, False)
    )
    scale = max(1.0, late * EARLY_SHARE / (1 - EARLY_SHARE) / early) if early else 1.0
    return [replace(stratum, weight=stratum.weight * scale) if stratum.is_early else stratum for stratum in kinds]


def breadth(write_count: int) -> float:
    """Return how many states a model wants of a phase, if it has no better reason."""
    return 2 * log2(2 + write_count)


def draw_order(items: Sequence[_T], chance: random.Random) -> list[_T]:
    """Return the items in a drawn order; every beginning of the list is spread over all items.

    The two halves of the items take turns, each half in an order that is drawn the same way.
    """
    if len(items) < 2:
        return list(items)
    middle = (len(items) + chance.randrange(2)) // 2
    halves = [draw_order(items[:middle], chance), draw_order(items[middle:], chance)]
    chance.shuffle(halves)
    in_turns = list(items)
    in_turns[::2], in_turns[1::2] = sorted(halves, key=len, reverse=True)
    return in_turns


def stratified_sample(items: Sequence[_T], count_max: int, chance: random.Random) -> list[_T]:
    """Return at most `count_max` items, in their order: one drawn from each of as many equal stretches of them."""
    if len(items) <= count_max:
        return list(items)
    bounds = [rank * len(items) // count_max for rank in range(count_max + 1)]
    return [items[chance.randrange(begin, end)] for begin, end in pairwise(bounds)]


def _kind(epoch: Epoch, phase: Phase | None) -> object:
    if phase is None:
        return bool(epoch.fuas), bool(epoch.batch)
    if len(phase.roles) <= _ALIKE_WRITES_MAX:
        return phase.roles
    return tuple(dict.fromkeys(phase.roles)), len(phase.roles).bit_length()
