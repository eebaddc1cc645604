"""Several writers at a time: the ledger, with processes and threads that all want to commit the next transaction.

Some transactions change one account only, and some a quarter of all, so that a log which starts again is shorter or
longer than the old one up to its first commit. Meanwhile another connection checkpoints, and yet another opens, reads
and closes (`rig.guest.programs.writers`).

The writer that gets the engine's write lock reads which transaction was the last and carries out the next one. So the
engine decides which writer commits what. The content after p commits does not depend on which writers made them, so it
is judged as always. If the content equals the model after p commits, each writer has a prefix of its own commits, in
the order in which they were made.
"""

from __future__ import annotations

import random

from rig.workloads import ledger
from rig.workloads.ledger import CREATES, ENTRY_LIFE, LATER, TABLES, TRANSACTIONS_MAX, events, initial
from rig.workloads.operations import Operation, Skill, Verb

__all__ = [
    "CREATES", "LAST", "LATER", "NEEDS", "TABLES", "TRANSACTIONS_MAX", "WRITERS", "events", "initial", "transaction",
]  # fmt: skip

NEEDS = frozenset({Skill.WRITERS})
# Processes, and threads in each.
WRITERS = (2, 2)
# The table and the column whose largest value is the number of the last transaction.
LAST = ("account", "changed_by")
# Of the transactions one in four changes a single account, and one in four these many.
_SIZES = ("small", "ledger", "ledger", "large")
_LARGE_COUNT = ledger.ACCOUNT_COUNT // 4


def transaction(seed: int, number: int) -> tuple[Operation, ...]:
    """Return the operations of transaction `number`, counted from 1."""
    operations = ledger.transaction(seed, number)
    size = _size(seed, number)
    if size == "small":
        return operations[:1]
    if _size(seed, number - ENTRY_LIFE) == "small":
        # That transaction made no entries.
        operations = tuple(operation for operation in operations if operation.verb is not Verb.DELETE)
    if size == "large":
        changed = {operation.key for operation in operations if operation.verb is Verb.UPDATE}
        others = sorted(set(range(1, ledger.ACCOUNT_COUNT + 1)) - changed)
        for key in random.Random(f"large {seed} {number}").sample(others, _LARGE_COUNT):
            operations += (Operation(Verb.UPDATE, "account", key, ledger.account_row(seed, number, key)),)
    return operations


def _size(seed: int, number: int) -> str:
    return random.Random(f"size {seed} {number}").choice(_SIZES)
