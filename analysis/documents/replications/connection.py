"""Connections as the documents' programs open them: the standard library's, with pragmas in the order given."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

FILE = "test.db"
_LEVELS = ("off", "normal", "full", "extra")


def connect(directory: str, pragmas: Sequence[str] = (), *, timeout_s: float = 5.0) -> sqlite3.Connection:
    """Open the database in autocommit mode, and carry out `name=value` pragmas one after the other."""
    connection = sqlite3.connect(f"{directory}/{FILE}", timeout=timeout_s, isolation_level=None)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def read_back(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the settings as the connection reads them back."""
    names = ("journal_mode", "synchronous", "page_size", "wal_autocheckpoint")
    settings = {name: str(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names}
    settings["synchronous"] = _LEVELS[int(settings["synchronous"])]
    return settings | {"version": sqlite3.sqlite_version}
