"""SQLite through Python's own driver.

`synchronous` is a property of the connection and is stored nowhere, so it is set at every open and read back.
A `cache_size` of the default keeps a transaction of the workloads in memory: nothing spills before the commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.workloads.operations import Content, Operation, Row, Table, Verb

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "journal_mode": ("delete", "truncate", "persist", "wal", "memory", "off"),
    "synchronous": ("off", "normal", "full", "extra"),
}
UNPROTECTED: Mapping[str, tuple[str, ...]] = {"journal_mode": ("memory", "off"), "synchronous": ("off",)}
# A checkpoint has to happen several times in a short run; SQLite's default of 1000 pages would never come.
TUNING: Mapping[str, str] = {"page_size": "4096", "wal_autocheckpoint": "60"}

_FILE = "test.db"
_SYNCHRONOUS = SETTINGS["synchronous"]
_TYPES = {int: "INTEGER", str: "TEXT"}


class SqliteDatabase:
    """One connection in autocommit mode; transactions are written out."""

    def __init__(self, path: str, settings: Mapping[str, str]) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._columns: dict[str, list[str]] = {}
        try:
            # page_size first: it cannot change once journal_mode=wal has written the header.
            for name in ("page_size", "journal_mode", "synchronous", "wal_autocheckpoint"):
                if name in settings:
                    self._connection.execute(f"PRAGMA {name}={settings[name]}")
            self._connection.execute("PRAGMA foreign_keys=on")
        except BaseException:
            self._connection.close()
            raise

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            columns = [f"{name} {_TYPES[kind]} NOT NULL" for name, kind in table.columns]
            if table.refers:
                columns.append(f"FOREIGN KEY ({table.refers[0]}) REFERENCES {table.refers[1]}(id)")
            self._connection.execute(f"CREATE TABLE {table.name} (id INTEGER PRIMARY KEY, {', '.join(columns)})")
            if table.index:
                self._connection.execute(f"CREATE INDEX {table.name}_{table.index} ON {table.name}({table.index})")
        self._carry_out(rows)
        self._connection.execute("COMMIT")

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after COMMIT has returned."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._carry_out(operations)
        self._connection.execute("COMMIT")

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of every table."""
        return {
            table.name: {row[0]: row[1:] for row in self._connection.execute(f"SELECT * FROM {table.name} ORDER BY id")}
            for table in tables
        }

    def problems(self) -> list[str]:
        """Return what integrity_check (tables, indexes, constraints) and foreign_key_check complain about."""
        rows = self._connection.execute("PRAGMA integrity_check(5)").fetchall()
        found = [str(row[0]) for row in rows if row[0] != "ok"]
        return found + [f"foreign key: {row}" for row in self._connection.execute("PRAGMA foreign_key_check")]

    def settings(self) -> dict[str, str]:
        """Return settings and version, read back."""
        names = ("journal_mode", "synchronous", "page_size", "wal_autocheckpoint", "foreign_keys", "locking_mode")
        found = {name: str(self._scalar(f"PRAGMA {name}")) for name in names}
        found["synchronous"] = _SYNCHRONOUS[int(found["synchronous"])]
        found["version"] = sqlite3.sqlite_version
        found["source_id"] = str(self._scalar("SELECT sqlite_source_id()"))
        return found

    def close(self) -> None:
        """Close the connection; the last one checkpoints a WAL."""
        self._connection.close()

    def _scalar(self, query: str) -> object:
        return self._connection.execute(query).fetchone()[0]

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._connection.execute(self._statement(operation), _parameters(operation))

    def _statement(self, operation: Operation) -> str:
        table = operation.table
        if operation.verb is Verb.DELETE:
            return f"DELETE FROM {table} WHERE id=?"
        if operation.verb is Verb.INSERT:
            return f"INSERT INTO {table} VALUES (?{',?' * len(operation.row)})"
        # REPLACE would delete and insert; this updates in place and keeps references to the row valid.
        if table not in self._columns:
            rows = self._connection.execute(f"PRAGMA table_info({table})")
            self._columns[table] = [row[1] for row in rows if row[1] != "id"]
        return f"UPDATE {table} SET {', '.join(f'{name}=?' for name in self._columns[table])} WHERE id=?"


def open_database(directory: str, settings: Mapping[str, str]) -> SqliteDatabase:
    """Open the database in a directory; recovery happens here or at the first read."""
    return SqliteDatabase(str(Path(directory) / _FILE), settings)


def _parameters(operation: Operation) -> Row:
    if operation.verb is Verb.UPDATE:
        return (*operation.row, operation.key)
    return (operation.key, *operation.row)
