"""The SQL of operations; operations on rows use the parameters of a statement in place of values."""

from __future__ import annotations

from collections.abc import Sequence

from rig.engines.sql import Dialect
from rig.workloads.operations import ROW_VERBS, Operation, Value, Verb

SQL = Dialect({int: "bigint", str: "text"})


def of_row(operation: Operation, columns: Sequence[str]) -> tuple[str, tuple[Value, ...]]:
    """Return the statement of an operation on a row, and its parameters; `columns` are the columns besides the key."""
    assert operation.verb in ROW_VERBS
    table = operation.table
    if operation.verb is Verb.DELETE:
        return f"DELETE FROM {table} WHERE id = $1", (operation.key,)
    if operation.verb is Verb.INSERT:
        marks = ", ".join(f"${number}" for number in range(1, len(operation.row) + 2))
        return f"INSERT INTO {table} VALUES ({marks})", (operation.key, *operation.row)
    changes = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, 2))
    return f"UPDATE {table} SET {changes} WHERE id = $1", (operation.key, *operation.row)
