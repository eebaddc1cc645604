"""The SQL of operations that are not about rows, in the dialects of several engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rig.workloads.operations import Content, Operation, Table, Verb

# Savepoints nest under one name: RELEASE and ROLLBACK TO mean the innermost.
_CONTROL = {
    Verb.SAVEPOINT: "SAVEPOINT s",
    Verb.RELEASE: "RELEASE s",
    Verb.ROLL_BACK_TO: "ROLLBACK TO s",
    Verb.ROLL_BACK: "ROLLBACK",
}


@dataclass(frozen=True)
class Dialect:
    """The names of column types in a dialect, and the quotes around a table's name, if it needs any."""

    types: Mapping[type, str]
    quote: str = ""

    def quote_name(self, name: str) -> str:
        """Return the name of a table as written in a statement."""
        return f"{self.quote}{name}{self.quote}"

    def of_table(self, table: Table, schema: str = "") -> tuple[str, ...]:
        """Return the statements that make a table and its index, in a schema if one is named."""
        place = f"{schema}." if schema else ""
        columns = [f"{name} {self.types[kind]} NOT NULL" for name, kind in table.columns]
        if table.refers:
            columns.append(f"FOREIGN KEY ({table.refers[0]}) REFERENCES {self.quote_name(table.refers[1])}(id)")
        of_columns = ", ".join(columns)
        made = f"CREATE TABLE {place}{self.quote_name(table.name)} (id {self.types[int]} PRIMARY KEY, {of_columns})"
        return (made, self._of_index(table, place)) if table.index else (made,)

    def of_other(self, operation: Operation) -> tuple[str, ...]:
        """Return the statements of an operation that is not about a row."""
        if operation.verb in _CONTROL:
            return (_CONTROL[operation.verb],)
        table = operation.made
        assert table, f"{operation.verb} names no table"
        if operation.verb is Verb.MAKE_TABLE:
            return self.of_table(table)
        if operation.verb is Verb.DROP_TABLE:
            return (f"DROP TABLE {self.quote_name(table.name)}",)
        if operation.verb is Verb.MAKE_INDEX:
            return (self._of_index(table),)
        return (f"DROP INDEX {_index(table)}",)

    def _of_index(self, table: Table, place: str = "") -> str:
        return f"CREATE INDEX {place}{_index(table)} ON {self.quote_name(table.name)}({table.index})"


def rows_text(tables: Sequence[Table], content: Content) -> str:
    """Return the name of each table and its rows, sorted by key, with a bar between two columns."""
    lines: list[str] = []
    for table in tables:
        rows = sorted(content[table.name].items())
        lines += [table.name, *("|".join(map(str, (key, *row))) for key, row in rows)]
    return "".join(f"{line}\n" for line in lines)


def _index(table: Table) -> str:
    return f"{table.name}_{table.index}"
