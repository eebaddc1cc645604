"""What a measured database does: the ledger of the rig, or transactions that each insert a fixed number of rows.

The ledger is the workload whose losses the rig counts; one connection carries it out. Several writers may insert rows,
each with rows and a connection of its own, and readers may look up the rows that were there before. A row is an integer
key and a text of 100 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rig.contract.scenario import DEFAULT_WORKLOAD
from rig.engines import Spec
from rig.workloads import Work
from rig.workloads.operations import ROW_VERBS, Operation, Table, Verb

_VALUE_BYTES = 100
_ROWS = Table("entry", (("value", str),))


@dataclass(frozen=True)
class Load:
    """What all writers do together."""

    # Rows of a transaction; 0 for the ledger.
    rows: int
    # Per writer.
    transactions: int
    writers: int
    seed: int
    # Rows in the table before the measured time, which the readers look up.
    filled: int = 0
    readers: int = 0
    # Mean pause of each connection before a transaction or a read.
    think_ms: int = 0

    @property
    def name(self) -> str:
        """Return the load in words."""
        size = f"{_count_text(self.rows, 'row')} into {self.filled}" if self.filled else _count_text(self.rows, "row")
        words = [
            size if self.rows else DEFAULT_WORKLOAD,
            _count_text(self.writers, "writer") if self.writers > 1 else "",
            _count_text(self.readers, "reader") if self.readers else "",
            f"think {self.think_ms} ms" if self.think_ms else "",
        ]
        return ", ".join(filter(None, words))

    @property
    def is_shared(self) -> bool:
        """Whether several connections use the database at a time."""
        return self.writers > 1 or self.readers > 0

    @property
    def estimated_bytes(self) -> int:
        """Return roughly how much is written to the database and its log."""
        each = self.rows * 2 * _VALUE_BYTES if self.rows else 64 << 10
        return 4 * (self.transactions * self.writers * max(each, 16 << 10) + self.filled * 2 * _VALUE_BYTES)


class Carried:
    """A load as an engine carries it out."""

    def __init__(self, load: Load, spec: Spec) -> None:
        self.load = load
        self._spec = spec

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables that are created before the measured time."""
        return (_ROWS,) if self.load.rows else self._ledger.first_tables

    @property
    def initial(self) -> Sequence[Operation]:
        """Return the rows that are inserted before the measured time."""
        if not self.load.rows:
            return self._ledger.initial
        return [_insert(key, self.load.seed) for key in range(1, self.load.filled + 1)]

    def transactions(self, writer: int) -> list[Sequence[Operation]]:
        """Return the transactions of one writer, counted from 0."""
        numbers = range(self.load.transactions)
        if not self.load.rows:
            return [self._ledger.transaction(number + 1) for number in numbers]
        return [self._insertions(writer, number) for number in numbers]

    def live_bytes(self, work: Sequence[Sequence[Sequence[Operation]]]) -> int:
        """Return the bytes of the keys and values that are there when the transactions of all writers are over."""
        sizes: dict[tuple[str, int], int] = {}
        done = (operation for writer in work for transaction in writer for operation in transaction)
        for operation in (*self.initial, *done):
            assert operation.verb in ROW_VERBS, f"{operation.verb} is no change of a row"
            if operation.verb is Verb.DELETE:
                del sizes[operation.table, operation.key]
            else:
                sizes[operation.table, operation.key] = operation.user_bytes
        return sum(sizes.values())

    def _insertions(self, writer: int, number: int) -> list[Operation]:
        load = self.load
        begin = load.filled + 1 + (number * load.writers + writer) * load.rows
        return [_insert(key, load.seed) for key in range(begin, begin + load.rows)]

    @cached_property
    def _ledger(self) -> Work:
        return Work(DEFAULT_WORKLOAD, self.load.seed, self.load.transactions, self._spec.skills)


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _insert(key: int, seed: int) -> Operation:
    value = hashlib.shake_128(f"row {seed} {key}".encode()).hexdigest(_VALUE_BYTES // 2)
    return Operation(Verb.INSERT, _ROWS.name, key, (value,))
