"""SQLite through Python's own driver, or the user's build: the setting `library`, see `rig.engines.sqlite.library`.

`synchronous` is a property of the connection and not stored, so it is set at every open and read back. With the default
`cache_size` a transaction of the workloads fits in memory, so nothing spills before the commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.engines.sqlite import library as sqlite_library
from rig.engines.sqlite.library import Connection
from rig.engines.sqlite.spec import SPEC
from rig.workloads.operations import Content, Operation, Row, Table, Verb

FILE = "test.db"
# Primary result codes: READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB (sqlite.org/rescode.html).
_FAULT_CODES = frozenset({8, 10, 11, 13, 14, 26})
_SYNCHRONOUS = SPEC.settings["synchronous"]
_TYPES = {int: "INTEGER", str: "TEXT"}


class SqliteDatabase:
    """One connection in autocommit mode; transactions are explicit statements."""

    def __init__(self, path: str, settings: Mapping[str, str]) -> None:
        self._library = settings.get("library", "")
        self._connection = _connected(path, self._library)
        self._columns: dict[str, list[str]] = {}
        self._journal_mode = settings.get("journal_mode", "")
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
        """Return the complaints of integrity_check (tables, indexes, constraints) and foreign_key_check."""
        rows = self._connection.execute("PRAGMA integrity_check(5)")
        found = [str(row[0]) for row in rows if row[0] != "ok"]
        return found + [f"foreign key: {row}" for row in self._connection.execute("PRAGMA foreign_key_check")]

    def settings(self) -> dict[str, str]:
        """Return settings and version, read back."""
        names = ("journal_mode", "synchronous", "page_size", "wal_autocheckpoint", "foreign_keys", "locking_mode")
        found = {name: str(self._scalar(f"PRAGMA {name}")) for name in names}
        found["synchronous"] = _SYNCHRONOUS[int(found["synchronous"])]
        found["version"] = str(self._scalar("SELECT sqlite_version()"))
        found["source_id"] = str(self._scalar("SELECT sqlite_source_id()"))
        if self._library:
            found["library"] = sqlite_library.digest(self._library)
        return found

    def rollback(self) -> None:
        """Roll back the transaction that raised, if SQLite has not done so itself."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a WAL."""
        return self._journal_mode == "wal"

    def checkpoint(self) -> None:
        """Checkpoint as SQLite does by itself, but raise errors that it would ignore."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def shrink_log(self) -> None:
        """Empty the WAL, or remove a persistent journal."""
        if self._journal_mode == "wal":
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        elif self._journal_mode == "persist":
            self._connection.execute("PRAGMA journal_mode=delete").fetchall()
            self._connection.execute("PRAGMA journal_mode=persist").fetchall()

    def forget(self) -> None:
        """Drop the page cache of the connection."""
        self._connection.execute("PRAGMA shrink_memory").fetchall()

    def close(self) -> None:
        """Close the connection; the last one checkpoints a WAL."""
        self._connection.close()

    def _scalar(self, query: str) -> object:
        return next(iter(self._connection.execute(query)))[0]

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._connection.execute(self._statement(operation), _parameters(operation))

    def _statement(self, operation: Operation) -> str:
        table = operation.table
        if operation.verb is Verb.DELETE:
            return f"DELETE FROM {table} WHERE id=?"
        if operation.verb is Verb.INSERT:
            return f"INSERT INTO {table} VALUES (?{',?' * len(operation.row)})"
        # REPLACE would delete and insert; UPDATE works in place and keeps references to the row valid.
        if table not in self._columns:
            rows = self._connection.execute(f"PRAGMA table_info({table})")
            self._columns[table] = [row[1] for row in rows if row[1] != "id"]
        return f"UPDATE {table} SET {', '.join(f'{name}=?' for name in self._columns[table])} WHERE id=?"


def open_database(directory: str, settings: Mapping[str, str]) -> SqliteDatabase:
    """Open the database in a directory; recovery happens here or at the first read."""
    return SqliteDatabase(str(Path(directory) / FILE), settings)


def is_fault(error: Exception) -> bool:
    """Return whether SQLite's error is due to the disk or its content."""
    return sqlite_library.error_code(error) in _FAULT_CODES


def is_mapped(name: str) -> bool:
    """Return whether SQLite maps a file of that name into memory."""
    return name.endswith("-shm")


def _connected(path: str, library: str) -> Connection:
    if library:
        return sqlite_library.connect(path, library)
    return sqlite3.connect(path, isolation_level=None)


def _parameters(operation: Operation) -> Row:
    if operation.verb is Verb.UPDATE:
        return (*operation.row, operation.key)
    return (operation.key, *operation.row)
