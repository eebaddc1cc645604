"""The transactions are the engine's own (`rig.engines.own`): the rig knows their numbers, and no rows."""

from __future__ import annotations

from rig.workloads.events import Event
from rig.workloads.operations import Operation, Skill, Table

TABLES: tuple[Table, ...] = ()
LATER: tuple[Table, ...] = ()
# Whatever the engine prepares is part of its first transaction.
CREATES = False
TRANSACTIONS_MAX: int | None = None
NEEDS: frozenset[Skill] = frozenset()


def initial(seed: int) -> tuple[Operation, ...]:  # noqa: ARG001 - as every workload
    """Return nothing."""
    return ()


def transaction(seed: int, number: int) -> tuple[Operation, ...]:  # noqa: ARG001 - as every workload
    """Return nothing."""
    return ()


def events(seed: int, number: int) -> tuple[Event, ...]:  # noqa: ARG001 - as every workload
    """Return nothing."""
    return ()
