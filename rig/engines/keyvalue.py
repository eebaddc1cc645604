"""Rows as keys and values: what key-value engines have in common.

A row is a value under a key in the space of its table. A table with an index has a second space, with a key for each
row: the indexed value, then the row's key. The space `tables` names the tables that exist. So a transaction of the
ledger changes four spaces. A row without its index entry, or an entry without its row, is damage.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from rig.workloads.operations import Content, Operation, Row, Table, Value, Verb, effective

TABLES = "tables"
# (space, key) -> the new value, or None if the key is deleted.
Changes = Mapping[tuple[str, bytes], bytes | None]
_PROBLEMS_MAX = 5


class KeyValueDatabase(ABC):
    """A database on top of an engine that keeps values under keys, in spaces."""

    def __init__(self) -> None:
        self._indexed: dict[str, int | None] = {}

    @abstractmethod
    def value(self, space: str, key: bytes) -> bytes | None:
        """Return the value under a key, or None."""

    @abstractmethod
    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of a space, sorted by key; nothing if there is no such space."""

    @abstractmethod
    def write(self, changes: Changes, *, is_undone: bool = False) -> None:
        """Carry out changes as one transaction, and roll it back if it is undone; return after the acknowledgement."""

    @abstractmethod
    def own_problems(self) -> list[str]:
        """Return what the engine's own check complains about."""

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""
        self._indexed = {table.name: _indexed_column(table) for table in tables}
        changes: dict[tuple[str, bytes], bytes | None] = {
            (TABLES, name.encode()): json.dumps(column).encode() for name, column in self._indexed.items()
        }
        self._add(changes, rows)
        self.write(changes)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction, or roll it back if it ends with a rollback."""
        is_undone = bool(operations) and operations[-1].verb is Verb.ROLL_BACK
        self._indexed = self._indexed or self._known_tables()
        changes: dict[tuple[str, bytes], bytes | None] = {}
        self._add(changes, effective(operations[:-1] if is_undone else operations))
        self.write(changes, is_undone=is_undone)

    def rollback(self) -> None:  # noqa: B027 - right for all of them
        """Do nothing: a transaction is written in one call, and one that raised has left nothing to roll back."""

    def forget(self) -> None:  # noqa: B027 - right for all of them
        """Do nothing: what these engines hold in memory cannot be dropped."""

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the given tables, without those that do not exist."""
        known = self._known_tables()
        return {
            table.name: {_number(key): _row(value) for key, value in self.items(table.name)}
            for table in tables
            if table.name in known
        }

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key."""
        value = self.value(table, _key(key))
        return None if value is None else _row(value)

    def problems(self) -> list[str]:
        """Return what the engine's own check says, and which rows and index entries lack their counterpart."""
        problems = self.own_problems()
        for name, column in self._known_tables().items():
            if column is None:
                continue
            rows = {(_row(value)[column], _number(key)) for key, value in self.items(name)}
            entries = {_row(key) for key, _ in self.items(_index(name))}
            problems += [f"{name}: row without its entry in the index: {row}" for row in sorted(rows - entries)]
            problems += [f"{name}: entry in the index without its row: {row}" for row in sorted(entries - rows)]
        return problems[:_PROBLEMS_MAX]

    def _known_tables(self) -> dict[str, int | None]:
        return {name.decode(): json.loads(column) for name, column in self.items(TABLES)}

    def _add(self, changes: dict[tuple[str, bytes], bytes | None], operations: Sequence[Operation]) -> None:
        for operation in operations:
            place = operation.table, _key(operation.key)
            column = self._indexed[operation.table]
            if column is not None and operation.verb is not Verb.INSERT:
                before = changes[place] if place in changes else self.value(*place)
                assert before is not None, f"{operation.table}/{operation.key} is gone, though it was there before"
                changes[_index(operation.table), _entry(_row(before)[column], operation.key)] = None
            changes[place] = None if operation.verb is Verb.DELETE else _pack(operation.row)
            if column is not None and operation.verb is not Verb.DELETE:
                changes[_index(operation.table), _entry(operation.row[column], operation.key)] = b""


def spaces_of(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the names of all spaces that these tables need."""
    indexes = [_index(table.name) for table in tables if table.index]
    return (TABLES, *(table.name for table in tables), *indexes)


def pairs(rows: Mapping[int, Row]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table's rows, sorted by key."""
    yield from ((_key(number), _pack(row)) for number, row in sorted(rows.items()))


def rows_text(tables: Sequence[Table], content: Content) -> str:
    """Return the spaces of tables and indexes, in the order of `spaces_of`, with a line for each key and value."""
    lines: list[str] = []
    for table in tables:
        lines += [table.name, *(f"{key.decode()} {value.decode()}" for key, value in pairs(content[table.name]))]
    for table in tables:
        if (column := _indexed_column(table)) is not None:
            entries = (_entry(row[column], number).decode() for number, row in content[table.name].items())
            lines += [_index(table.name), *(f"{entry} " for entry in sorted(entries))]
    return "".join(f"{line}\n" for line in lines)


def _index(table: str) -> str:
    return f"{table}.index"


def _indexed_column(table: Table) -> int | None:
    names = [name for name, _ in table.columns]
    return names.index(table.index) if table.index else None


def _key(number: int) -> bytes:
    # Sorts as the numbers do.
    return f"{number:012}".encode()


def _number(key: bytes) -> int:
    return int(key)


def _entry(value: Value, key: int) -> bytes:
    return _pack((value, key))


def _pack(row: Row) -> bytes:
    return json.dumps(row).encode()


def _row(value: bytes) -> Row:
    return tuple(json.loads(value))
