"""The vocabulary of workloads: tables, operations on rows, and the content of a whole database.

A table has an integer key and named columns; one column may be indexed and may refer to another table. That is
enough to give a relational engine separate pages for tables and indexes, and simple enough for a key-value engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Value = int | str
Row = tuple[Value, ...]
# table -> key -> the row without its key.
Content = Mapping[str, Mapping[int, Row]]


class Verb(StrEnum):
    """What an operation does to one row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Table:
    """A table; its key is an integer column called `id`."""

    name: str
    columns: tuple[tuple[str, type], ...]
    index: str = ""
    # column -> table that it refers to.
    refers: tuple[str, str] | None = None


@dataclass(frozen=True)
class Operation:
    """A change of one row. `row` holds all columns but the key, and is empty for a delete."""

    verb: Verb
    table: str
    key: int
    row: Row = ()

    @property
    def user_bytes(self) -> int:
        """Return the bytes of key and values that the user passes."""
        return 8 + sum(8 if isinstance(value, int) else len(value) for value in self.row)


def apply(content: dict[str, dict[int, Row]], operations: tuple[Operation, ...]) -> None:
    """Apply operations to a content in place; raise ValueError to insert over a row or to change a missing one."""
    for operation in operations:
        rows = content[operation.table]
        if (operation.key in rows) == (operation.verb is Verb.INSERT):
            raise ValueError(f"{operation.verb} of {operation.table}/{operation.key} does not fit the content")
        if operation.verb is Verb.DELETE:
            del rows[operation.key]
        else:
            rows[operation.key] = operation.row
