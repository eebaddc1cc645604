"""A program on SQLite that trusts the wall clock where it should not, and so loses what SQLite kept: a control.

SQLite's durability does not depend on the clock, so SQLite alone cannot show that a wrong clock would be noticed.
This program depends on it in two ways that are common, and breaks under a wrong clock what holds under a right one:
The last writer wins: each transaction is stamped with the time, and one whose stamp is no later than the latest stored
is old news; it is skipped and acknowledged. Behind a clock that went back, or stands still, all are lost.
The books are closed: once a year has gone by since the database was made, whoever opens it drops the entries of the
ledger. A machine that comes back twenty years ahead does so at once.
The stamps are in a table of their own, in the transaction that they are of, so the rest is the ledger as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rig.engines.sqlite.driver import FILE, SqliteDatabase
from rig.workloads.operations import Operation, Table

_YEAR_NS = 365 * 86_400 * 1_000_000_000


class LastWriter(SqliteDatabase):
    """The database of such a program; `now_ns` is its wall clock, in nanoseconds since 1970."""

    def __init__(self, path: str, settings: Mapping[str, str], now_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(path, settings)
        self._now_ns = now_ns
        try:
            if self._scalar("SELECT count(*) FROM sqlite_master WHERE name='stamps'"):
                year_ago = (now_ns() - _YEAR_NS,)
                self._connection.execute("DELETE FROM entry WHERE (SELECT made FROM stamps) < ?", year_ago)
        except BaseException:
            self.close()
            raise

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create and fill the tables, and note the time."""
        super().create(tables, rows)
        now_ns = self._now_ns()
        self._connection.execute("CREATE TABLE stamps (made INTEGER NOT NULL, latest INTEGER NOT NULL)")
        self._connection.execute("INSERT INTO stamps VALUES (?, ?)", (now_ns, now_ns))

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction, unless a later one is stored; return as if it had been in any case."""
        now_ns = self._now_ns()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("UPDATE stamps SET latest=? WHERE latest<?", (now_ns, now_ns))
        if self._scalar("SELECT changes()"):
            self._carry_out(operations)
        self._connection.execute("COMMIT")


def open_database(directory: str, settings: Mapping[str, str]) -> LastWriter:
    """Open the database of such a program in a directory."""
    return LastWriter(f"{directory}/{FILE}", settings)
