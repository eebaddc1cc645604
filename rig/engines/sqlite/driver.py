"""SQLite through Python's own driver, or the user's build: the setting `library`, see `rig.engines.sqlite.library`.

`synchronous` is a property of the connection and not stored, so it is set at every open and read back. With the default
`cache_size` a transaction of the ledger fits in memory, so nothing spills before the commit.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rig.engines.sql import Dialect
from rig.engines.sqlite import library as sqlite_library
from rig.engines.sqlite import situations, upkeep
from rig.engines.sqlite.library import Connection
from rig.engines.sqlite.spec import SPEC
from rig.workloads.events import EventKind
from rig.workloads.operations import ROW_VERBS, Content, Operation, Row, Table, Verb

FILE = "test.db"
# A second database, attached under this name if the setting `attach` gives its journal mode. It has all tables but the
# first, so that every transaction of the ledger changes both databases.
OTHER, OTHER_FILE = "other", "other.db"
_BUSY = 5
# Primary result codes: READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB (sqlite.org/rescode.html).
_FAULT_CODES = frozenset({8, 10, 11, 13, 14, 26})
# The words for numbers that some pragmas read back.
_WORDS = {"synchronous": SPEC.settings["synchronous"], "auto_vacuum": ("none", "full", "incremental")}
# Settings that are seldom named; they are read back only if they are named.
_SELDOM = ("auto_vacuum", "cache_size", "journal_size_limit", "mmap_size")
# The order matters: page_size and auto_vacuum cannot change once journal_mode=wal has written the header, and with an
# exclusive lock from the start a WAL needs no shared memory.
_ORDER = (
    "page_size", "auto_vacuum", "mmap_size", "locking_mode", "journal_mode", "synchronous", "wal_autocheckpoint",
    "journal_size_limit", "cache_size",
)  # fmt: skip
# Settings of the connection, or meant to differ between the databases.
_OF_ONE = ("journal_mode", "wal_autocheckpoint", "foreign_keys")
_SQL = Dialect({int: "INTEGER", str: "TEXT"})


class SqliteDatabase:
    """One connection in autocommit mode; transactions are explicit statements."""

    def __init__(self, path: str, settings: Mapping[str, str]) -> None:
        self._library = settings.get("library", "")
        is_new = not os.path.exists(path)
        self._connection = _connect(path, self._library)
        self._watch = situations.FileWatch(path)
        self._columns: dict[str, list[str]] = {}
        self._journal_mode = settings.get("journal_mode", "")
        self._attached = settings.get("attach", "")
        self._read_back = tuple(name for name in _SELDOM if name in settings)
        try:
            for name in _ORDER:
                if name in settings and (is_new or name != "auto_vacuum"):
                    self._connection.execute(f"PRAGMA {name}={settings[name]}")
            self._connection.execute("PRAGMA foreign_keys=on")
            if self._attached:
                self._attach(os.path.join(os.path.dirname(path), OTHER_FILE), settings, is_new=is_new)
        except BaseException:
            self._connection.close()
            raise

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            is_apart = self._attached and table is not tables[0]
            # A reference cannot leave its database.
            statements = _SQL.of_table(replace(table, refers=None), OTHER) if is_apart else _SQL.of_table(table)
            for statement in statements:
                self._connection.execute(statement)
        self._carry_out(rows)
        self._connection.execute("COMMIT")

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after its COMMIT, or its ROLLBACK, has returned."""
        self._watch.begin()
        self._connection.execute("BEGIN IMMEDIATE")
        is_undone = bool(operations) and operations[-1].verb is Verb.ROLL_BACK
        self._carry_out(operations[:-1] if is_undone else operations)
        self._watch.note_operations()
        self._connection.execute("ROLLBACK" if is_undone else "COMMIT")
        self._watch.note_commit()

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the given tables; leave out tables that do not exist."""
        schemas = ("main", OTHER) if self._attached else ("main",)
        queries = (f"SELECT name FROM {schema}.sqlite_master WHERE type='table'" for schema in schemas)
        known = {row[0] for query in queries for row in self._connection.execute(query)}
        return {
            table.name: {row[0]: row[1:] for row in self._connection.execute(f"SELECT * FROM {table.name} ORDER BY id")}
            for table in tables
            if table.name in known
        }

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key."""
        # Fetch all rows: a statement that is not at its end keeps the read transaction open.
        rows = list(self._connection.execute(f"SELECT * FROM {table} WHERE id=?", (key,)))
        return tuple(rows[0][1:]) if rows else None

    def parts(self, tables: Sequence[Table]) -> Sequence[frozenset[str]]:
        """Return which tables each of the two databases has; nothing if there is only one database."""
        if not self._attached:
            return ()
        first, *others = (table.name for table in tables)
        return frozenset({first}), frozenset(others)

    def problems(self) -> list[str]:
        """Return the complaints of integrity_check (tables, indexes, constraints) and foreign_key_check."""
        rows = self._connection.execute("PRAGMA integrity_check(5)")
        problems = [str(row[0]) for row in rows if row[0] != "ok"]
        return problems + [f"foreign key: {row}" for row in self._connection.execute("PRAGMA foreign_key_check")]

    def settings(self) -> dict[str, str]:
        """Return settings and version, read back."""
        names = ("journal_mode", "synchronous", "page_size", "wal_autocheckpoint", "foreign_keys", "locking_mode")
        settings = {name: self._pragma(name) for name in (*names, *self._read_back)}
        if self._attached:
            settings["attach"] = str(self._scalar(f"PRAGMA {OTHER}.journal_mode"))
        settings["version"] = str(self._scalar("SELECT sqlite_version()"))
        settings["source_id"] = str(self._scalar("SELECT sqlite_source_id()"))
        if self._library:
            settings["library"] = sqlite_library.digest(self._library)
        return settings

    def happen(self, kind: EventKind, variant: str) -> bool:
        """Carry out an event; return False if it has no meaning in this journal mode."""
        return upkeep.happen(self._connection, self._journal_mode, kind, variant, self._watch)

    def observe(self) -> None:
        """Look at the files from now on."""
        self._watch.is_on = True

    def seen(self) -> list[str]:
        """Return what has happened to the files since the last call."""
        return self._watch.take()

    def claim(self, table: str, column: str) -> int | None:
        """Begin a transaction and return the largest value of a column; None if another connection is writing."""
        self._connection.execute("PRAGMA busy_timeout=0").fetchall()
        if not self._try("BEGIN IMMEDIATE"):
            return None
        return int(str(self._scalar(f"SELECT max({column}) FROM {table}")))

    def carry_out(self, operations: Sequence[Operation]) -> None:
        """Carry out operations in the transaction that was begun."""
        self._carry_out(operations)

    def finish(self) -> bool:
        """Commit; return False if SQLite is busy, and the transaction is still open."""
        return self._try("COMMIT")

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

    def leave(self) -> None:
        """Close the connection, without a checkpoint if the library can skip it."""
        # The check tells mypy that the guest's Python has setconfig, which the host's oldest Python lacks.
        if sys.version_info >= (3, 12) and isinstance(self._connection, sqlite3.Connection):
            self._connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
        self.close()

    def _try(self, statement: str) -> bool:
        try:
            self._connection.execute(statement)
        except Exception as error:
            if sqlite_library.error_code(error) != _BUSY:
                raise
            return False
        return True

    def _attach(self, path: str, settings: Mapping[str, str], *, is_new: bool) -> None:
        self._connection.execute(f"ATTACH ? AS {OTHER}", (path,))
        for name in _ORDER:
            if name in settings and name != "wal_autocheckpoint" and (is_new or name != "auto_vacuum"):
                value = self._attached if name == "journal_mode" else settings[name]
                self._connection.execute(f"PRAGMA {OTHER}.{name}={value}")

    def _pragma(self, name: str) -> str:
        """Return a setting as read back; if the databases differ where they should agree, all values."""
        schemas = ("main", OTHER) if self._attached and name not in _OF_ONE else ("main",)
        values = [self._scalar(f"PRAGMA {schema}.{name}") for schema in schemas]
        words = _WORDS.get(name)
        return "/".join(dict.fromkeys(words[int(str(value))] if words else str(value) for value in values))

    def _scalar(self, query: str) -> object:
        return next(iter(self._connection.execute(query)))[0]

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if operation.verb in ROW_VERBS:
                self._connection.execute(self._statement(operation), _parameters(operation))
                continue
            for statement in _SQL.of_other(operation):
                self._connection.execute(statement)

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
    return SqliteDatabase(f"{directory}/{FILE}", settings)


def met(directory: str) -> list[str]:
    """Return what opening the database will meet."""
    words = (word for file in (FILE, OTHER_FILE) for word in situations.meetings(f"{directory}/{file}"))
    return list(dict.fromkeys(words))


def is_fault(error: Exception) -> bool:
    """Return whether SQLite's error is due to the disk or its content."""
    return sqlite_library.error_code(error) in _FAULT_CODES


def is_mapped(name: str) -> bool:
    """Return whether SQLite maps a file of that name into memory."""
    return name.endswith("-shm")


def _connect(path: str, library: str) -> Connection:
    if library:
        return sqlite_library.connect(path, library)
    return sqlite3.connect(path, isolation_level=None)


def _parameters(operation: Operation) -> Row:
    if operation.verb is Verb.UPDATE:
        return (*operation.row, operation.key)
    return (operation.key, *operation.row)
