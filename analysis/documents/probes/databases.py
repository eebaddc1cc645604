"""SQLite databases as the probes need them: opened in autocommit, filled, measured by file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from rig.analysis.documents.probes.calls import counting_connection

Pragmas = dict[str, str | int]


def connect(path: Path, **pragmas: str | int) -> sqlite3.Connection:
    """Return a connection in autocommit that waits for no lock, with these pragmas set in their order."""
    return _set(sqlite3.connect(path, timeout=0, isolation_level=None), pragmas)


def connect_counting(path: Path, **pragmas: str | int) -> sqlite3.Connection:
    """Return such a connection whose calls are counted."""
    return _set(counting_connection(path, timeout=0), pragmas)


def _set(connection: sqlite3.Connection, pragmas: Pragmas) -> sqlite3.Connection:
    for name, value in pragmas.items():
        pragma(connection, name, value)
    return connection


def pragma(connection: sqlite3.Connection, name: str, value: str | int = "") -> Any:
    """Set a pragma, or only read it, and return what SQLite answers."""
    row = connection.execute(f"PRAGMA {name}{f' = {value}' if value != '' else ''}").fetchone()
    return row[0] if row else None


def refusal(connection: sqlite3.Connection, statement: str) -> str:
    """Execute a statement and return SQLite's words if it refuses, empty if it does not."""
    try:
        connection.execute(statement).fetchall()
    except sqlite3.OperationalError as error:
        return str(error)
    return ""


def fill(connection: sqlite3.Connection, row_count: int, payload_bytes: int = 100) -> None:
    """Make the table `rows` and fill it in one transaction."""
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, payload BLOB)")
    if not row_count:
        return
    connection.execute("BEGIN")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO rows SELECT i, randomblob(?) FROM n",
        (row_count, payload_bytes),
    )
    connection.execute("COMMIT")


def insert(connection: sqlite3.Connection, count: int, payload_bytes: int = 100) -> None:
    """Insert rows, each in a transaction of its own."""
    for _ in range(count):
        connection.execute("INSERT INTO rows (payload) VALUES (randomblob(?))", (payload_bytes,))


def wal_of(path: Path) -> Path:
    """Return where the WAL of a database is."""
    return path.with_name(f"{path.name}-wal")


def shm_of(path: Path) -> Path:
    """Return where the index of the WAL of a database is."""
    return path.with_name(f"{path.name}-shm")


def size_bytes(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def row_count(path: Path) -> int:
    """Return how many rows a new connection finds; -1 if it does not even find the table."""
    connection = connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.OperationalError:
        return -1
    finally:
        connection.close()
