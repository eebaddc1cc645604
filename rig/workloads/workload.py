"""A workload: transactions as pure functions of (seed, number), what happens between them, and the content after each.

A workload does the same with every engine, except for what an engine cannot do: see `operations.within` and `events`.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache, cached_property
from typing import Protocol, runtime_checkable

from rig.contract.errors import UsageError
from rig.contract.scenario import DEFAULT_WORKLOAD, OWN_WORKLOAD
from rig.workloads.events import Event
from rig.workloads.operations import Content, Operation, Skill, Table, Verb, models, within
from rig.workloads.oracle import Oracle
from rig.workloads.seeds import seed_at

# The modules of this package; the ones that are measured at night if none is named; and the ones of a quick run, where
# a life begins with the creation.
NAMES = (DEFAULT_WORKLOAD, "life", "creation", "rough", "writers")
MEASURED = NAMES[:3]
QUICK = NAMES[:2]


@runtime_checkable
class Workload(Protocol):
    """A module of this package: pure functions, which count transactions after the creation from 1."""

    # The tables that exist from the start, and those that transactions make and drop.
    TABLES: tuple[Table, ...]
    LATER: tuple[Table, ...]
    # Whether making the database is transaction 1, so that it is cut too; if not, it is durable before the first one.
    CREATES: bool
    # The most transactions that are recorded; None without a limit.
    TRANSACTIONS_MAX: int | None
    # The skills that an engine needs; without them this would be another workload.
    NEEDS: frozenset[Skill]

    def initial(self, seed: int) -> tuple[Operation, ...]:
        """Return the inserts that make the content before transaction 1."""

    def transaction(self, seed: int, number: int) -> tuple[Operation, ...]:
        """Return the operations of transaction `number`, counted from 1; each leaves a content never seen before."""

    def events(self, seed: int, number: int) -> tuple[Event, ...]:
        """Return what happens just before transaction `number`."""


@runtime_checkable
class Walk(Protocol):
    """A workload whose transactions depend on the ones before: it has to know which of these a later life made."""

    def later_transaction(self, seed: int, lives: tuple[int, ...], number: int) -> tuple[Operation, ...]:
        """Return the operations of transaction `number`; `lives` as in `rig.workloads.seeds.seed_at`."""


@cache
def workload_named(name: str) -> Workload:
    """Return a workload; raise UsageError naming the choices."""
    if name not in {*NAMES, OWN_WORKLOAD}:
        raise UsageError(f"unknown workload {name!r}; there are: {', '.join(NAMES)}")
    module = importlib.import_module(f"rig.workloads.{name}")
    assert isinstance(module, Workload), f"rig.workloads.{name} lacks what a workload needs"
    return module


class Work:
    """One workload with its seed and length, as an engine with these skills carries it out."""

    def __init__(
        self,
        name: str,
        seed: int,
        transaction_count: int,
        skills: Collection[Skill] = frozenset(Skill),
        lives: tuple[int, ...] = (),
    ) -> None:
        """Take `lives`, how many transactions the database showed at the end of each life but the last."""
        self._workload = workload_named(name)
        self._seed = seed
        self._lives = lives
        self._count = transaction_count
        self._skills = skills
        # The tables that exist from the start, and all that may ever exist.
        self.first_tables = self._workload.TABLES
        self.tables = (*self._workload.TABLES, *(self._workload.LATER if Skill.SCHEMA in skills else ()))
        self.initial = self._workload.initial(seed)
        # Whether transaction 1 makes the database.
        self.creates = self._workload.CREATES
        # How many processes commit at a time, and threads in each: (1, 1) unless the workload says more. If it does,
        # `last` is the table and column that tell which transaction was the last.
        self.writers: tuple[int, int] = getattr(self._workload, "WRITERS", (1, 1))
        self.last: tuple[str, str] = getattr(self._workload, "LAST", ("", ""))

    def transaction(self, number: int) -> tuple[Operation, ...]:
        """Return the operations of transaction `number`, counted from 1."""
        if number <= self.creates:
            made = (Operation(Verb.MAKE_TABLE, table.name, made=table) for table in self.first_tables)
            return (*made, *self.initial)
        lives = tuple(shown - self.creates for shown in self._lives)
        if lives and isinstance(self._workload, Walk):
            return self._within(self._workload.later_transaction(self._seed, lives, number - self.creates))
        return self._within(self._workload.transaction(seed_at(self._seed, self._lives, number), number - self.creates))

    def events(self, number: int) -> tuple[Event, ...]:
        """Return what happens just before transaction `number`."""
        if number <= self.creates:
            return ()
        return tuple(
            Event(event.kind, event.draw, self._within(event.operations))
            for event in self._workload.events(self._seed, number - self.creates)
        )

    @cached_property
    def models(self) -> tuple[Content, ...]:
        """Return the content after each number of transactions, from none to all."""
        if self.creates:
            return models((), (), self.transaction, self._count)
        return models(self.first_tables, self.initial, self.transaction, self._count)

    def oracle(self) -> Oracle:
        """Return the oracle that judges a database after this work."""
        return Oracle(self.tables, self.models, self.transaction)

    def user_bytes(self, issued: int) -> int:
        """Return the bytes of keys and values that the first `issued` transactions pass to the engine."""
        return sum(operation.user_bytes for number in range(1, issued + 1) for operation in self.transaction(number))

    def _within(self, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        return within(operations, self._skills, self.first_tables)
