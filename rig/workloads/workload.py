"""A workload: transactions as pure functions of (seed, number), and the content after each number of transactions."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Protocol, runtime_checkable

from rig.contract.errors import UsageError
from rig.workloads.operations import Content, Operation, Table
from rig.workloads.oracle import Oracle

# Modules of this package.
NAMES = ("ledger",)
DEFAULT = "ledger"


@runtime_checkable
class Workload(Protocol):
    """A module of this package. Everything but the tables is a pure function of its arguments."""

    TABLES: tuple[Table, ...]

    def initial(self, seed: int) -> tuple[Operation, ...]:
        """Return the inserts that make the content before transaction 1."""

    def transaction(self, seed: int, number: int) -> tuple[Operation, ...]:
        """Return the operations of transaction `number`, counted from 1."""

    def models(self, seed: int, transaction_count: int) -> tuple[Content, ...]:
        """Return the content after p transactions for every p from 0 to `transaction_count`."""


def workload_named(name: str) -> Workload:
    """Return a workload; raise UsageError naming the choices."""
    if name not in NAMES:
        raise UsageError(f"unknown workload {name!r}; there are: {', '.join(NAMES)}")
    module = importlib.import_module(f"rig.workloads.{name}")
    assert isinstance(module, Workload), f"rig.workloads.{name} lacks what a workload needs"
    return module


class Work:
    """One workload with its seed and length, as a guest runs and judges it."""

    def __init__(self, name: str, seed: int, transaction_count: int) -> None:
        self._workload = workload_named(name)
        self._seed = seed
        self.tables = self._workload.TABLES
        self.initial = self._workload.initial(seed)
        self.transaction = partial(self._workload.transaction, seed)
        self._count = transaction_count

    def models(self) -> tuple[Content, ...]:
        """Return the content after each number of transactions, from none to all."""
        return self._workload.models(self._seed, self._count)

    def oracle(self) -> Oracle:
        """Return the oracle that judges a database after this work."""
        return Oracle(self.tables, self.models(), self.transaction)

    def user_bytes(self, issued: int) -> int:
        """Return the bytes of keys and values that the first `issued` transactions pass to the engine."""
        return sum(one.user_bytes for number in range(1, issued + 1) for one in self.transaction(number))
