"""A control: a program on SQLite that wrongly trusts the wall clock, and so loses what SQLite kept.

SQLite's durability does not depend on the clock, so SQLite alone cannot show that the rig would notice a wrong clock.
This program depends on the clock in two common ways. Both work under a right clock and fail under a wrong one:
- The last writer wins. Each transaction is stamped with the time. If its stamp is not later than the latest stored one,
  the transaction counts as outdated: it is skipped and acknowledged. After a clock went back, or while it stands still,
  all transactions are lost.
- The books are closed. A year after the database was made, opening it drops the entries of the ledger. On a machine
  that comes back twenty years ahead this happens at once.

The stamps have their own table and are written in the transaction that they belong to, so the ledger itself is
unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rig.engines.sqlite.driver import FILE, SqliteDatabase
from rig.workloads.operations import Operation, Table

_YEAR_NS = 365 * 86_400 * 1_000_000_000


class LastWriter(SqliteDatabase):
    """The program's database; `now_ns` is its wall clock, in nanoseconds since 1970."""

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
        """Carry out one transaction unless a later stamp is stored; report success in both cases."""
        now_ns = self._now_ns()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("UPDATE stamps SET latest=? WHERE latest<?", (now_ns, now_ns))
        if self._scalar("SELECT changes()"):
            self._carry_out(operations)
        self._connection.execute("COMMIT")


def open_database(directory: str, settings: Mapping[str, str]) -> LastWriter:
    """Open the program's database in a directory."""
    return LastWriter(f"{directory}/{FILE}", settings)
