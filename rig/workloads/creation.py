"""The first seconds of a database: it is made, and soon holds what nobody wants to lose.

The ledger (`rig.workloads.ledger`), but making the database is its first transaction: acknowledged when the engine
returns, and cut before, during and after. Short, so that most cuts are into what an engine does only once: it names its
files, writes their first headers, and moves its log for the first time.

A user's program, whose transactions are its own, makes its data anew in each transaction, in another empty directory
(`rig.guest.programs.creations`).
"""

from __future__ import annotations

from rig.workloads.ledger import LATER, NEEDS, TABLES, events, initial, transaction

__all__ = ["CREATES", "LATER", "NEEDS", "TABLES", "TRANSACTIONS_MAX", "events", "initial", "transaction"]

CREATES = True
TRANSACTIONS_MAX: int | None = 12
