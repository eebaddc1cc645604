"""Several writers at a time: the ledger, with processes and threads that all want to commit the next transaction.

Meanwhile another connection checkpoints, and yet another opens, reads and closes (`rig.guest.programs.writers`).
The writer that gets the engine's write lock reads which transaction was the last and carries out the next one. So the
engine decides which writer commits what. The content after p commits does not depend on which writers made them, so it
is judged as always. If the content equals the model after p commits, each writer has a prefix of its own commits, in
the order in which they were made.
"""

from __future__ import annotations

from rig.workloads.ledger import CREATES, LATER, TABLES, TRANSACTIONS_MAX, events, initial, transaction
from rig.workloads.operations import Skill

__all__ = [
    "CREATES", "LAST", "LATER", "NEEDS", "TABLES", "TRANSACTIONS_MAX", "WRITERS", "events", "initial", "transaction",
]  # fmt: skip

NEEDS = frozenset({Skill.WRITERS})
# Processes, and threads in each.
WRITERS = (2, 2)
# The table and the column whose largest value is the number of the last transaction.
LAST = ("account", "changed_by")
