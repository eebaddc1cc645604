"""A life in which transactions also roll back to a savepoint when they have changed more since than the cache holds.

Apart from `rig.workloads.life`, because releases of an engine lose committed transactions after such a rollback, even
without a cut. An engine may use other settings here that are known to be too much for it (`Spec.tuning_of`). A promise
that this workload breaks in every release would hide what else is found in a life.
"""

from __future__ import annotations

from rig.workloads import life
from rig.workloads.events import Event
from rig.workloads.life import CREATES, LATER, TABLES, TRANSACTIONS_MAX, initial
from rig.workloads.operations import Operation, Skill

__all__ = ["CREATES", "LATER", "NEEDS", "TABLES", "TRANSACTIONS_MAX", "events", "initial", "transaction"]

NEEDS = frozenset({Skill.SAVEPOINTS})
_CARDS = tuple(life.undo_spill if card is life.spill_and_undo else card for card in life.CARDS)


def transaction(seed: int, number: int) -> tuple[Operation, ...]:
    """Return the operations of transaction `number`, counted from 1."""
    return life.step(seed, number, _CARDS).operations


def events(seed: int, number: int) -> tuple[Event, ...]:
    """Return what happens just before transaction `number`."""
    return life.step(seed, number, _CARDS).events
