"""The SQL of operations. Statements contain their values: a statement that runs only once is not prepared."""

from __future__ import annotations

from collections.abc import Sequence

from rig.engines.sql import Dialect
from rig.workloads.operations import ROW_VERBS, Operation, Value, Verb

# Some names of tables are words of its SQL.
SQL = Dialect({int: "bigint", str: "mediumtext"}, quote="`")


def of_row(operation: Operation, columns: Sequence[str]) -> str:
    """Return the statement of an operation on a row; `columns` are the columns besides the key."""
    assert operation.verb in ROW_VERBS
    table = SQL.quote_name(operation.table)
    if operation.verb is Verb.DELETE:
        return f"DELETE FROM {table} WHERE id = {operation.key}"
    values = [_literal(value) for value in operation.row]
    if operation.verb is Verb.INSERT:
        return f"INSERT INTO {table} VALUES ({', '.join([str(operation.key), *values])})"
    changes = ", ".join(f"{name} = {value}" for name, value in zip(columns, values, strict=True))
    return f"UPDATE {table} SET {changes} WHERE id = {operation.key}"


def kind_of(word: str) -> type:
    """Return the type of values in a column that the server describes with a word such as `bigint(20)`."""
    return int if word.startswith(SQL.types[int]) else str


class Savepoints:
    """The savepoints of a transaction: a second one of the same name would replace the first, so each has a number."""

    def __init__(self) -> None:
        self._depth = 0

    def statement(self, verb: Verb) -> str:
        """Return the statement of an operation on the innermost savepoint, or on the transaction."""
        if verb is Verb.ROLL_BACK:
            return "ROLLBACK"
        if verb is Verb.SAVEPOINT:
            self._depth += 1
            return f"SAVEPOINT s{self._depth}"
        if verb is Verb.ROLL_BACK_TO:
            return f"ROLLBACK TO SAVEPOINT s{self._depth}"
        assert verb is Verb.RELEASE, f"{verb} cannot be part of a transaction"
        self._depth -= 1
        return f"RELEASE SAVEPOINT s{self._depth + 1}"


def _literal(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
