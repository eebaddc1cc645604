"""A ledger: every transaction moves between two accounts, adds entries, and removes an old transaction's entries.

Each transaction updates two rows of `account`, inserts two rows of `entry` and, once there are old ones, deletes two,
so it touches several pages of two tables and an index. It is a pure function of (seed, number). An updated row holds
the number of the transaction that wrote it, so a stale page is visible; which rows are deleted follows from the number
alone.
"""

from __future__ import annotations

import hashlib
import random

from rig.workloads.events import Event
from rig.workloads.operations import Operation, Row, Skill, Table, Verb

ACCOUNT_COUNT = 48
# A transaction deletes the entries of the transaction this many before it, so the database stops growing.
ENTRY_LIFE = 24
_ACCOUNT_NOTE_CHARS = 400
_ENTRY_NOTE_CHARS = 700

TABLES = (
    Table("account", (("owner", str), ("balance", int), ("changed_by", int), ("note", str)), index="changed_by"),
    Table("entry", (("account", int), ("amount", int), ("note", str)), index="account", refers=("account", "account")),
)
LATER: tuple[Table, ...] = ()
CREATES = False
TRANSACTIONS_MAX: int | None = None
NEEDS: frozenset[Skill] = frozenset()


def initial(seed: int) -> tuple[Operation, ...]:
    """Return the inserts that make the content before transaction 1."""
    return tuple(
        Operation(Verb.INSERT, "account", key, account_row(seed, 0, key)) for key in range(1, ACCOUNT_COUNT + 1)
    )


def transaction(seed: int, number: int) -> tuple[Operation, ...]:
    """Return the operations of transaction `number`, counted from 1."""
    choice = random.Random(f"ledger {seed} {number}")
    accounts = choice.sample(range(1, ACCOUNT_COUNT + 1), 2)
    operations = [Operation(Verb.UPDATE, "account", key, account_row(seed, number, key)) for key in accounts]
    for key, account in zip(_entry_keys(number), accounts, strict=True):
        note = _text(f"entry {seed} {number} {key}", _ENTRY_NOTE_CHARS)
        operations.append(Operation(Verb.INSERT, "entry", key, (account, choice.randrange(1, 10**6), note)))
    if number > ENTRY_LIFE:
        operations += [Operation(Verb.DELETE, "entry", key) for key in _entry_keys(number - ENTRY_LIFE)]
    return tuple(operations)


def events(seed: int, number: int) -> tuple[Event, ...]:  # noqa: ARG001 - as every workload
    """Return nothing: between two transactions nothing happens."""
    return ()


def account_row(seed: int, number: int, key: int) -> Row:
    """Return the row of an account as a transaction leaves it."""
    balance = random.Random(f"balance {seed} {number} {key}").randrange(10**9)
    return f"owner-{key}", balance, number, _text(f"account {seed} {number} {key}", _ACCOUNT_NOTE_CHARS)


def _entry_keys(number: int) -> tuple[int, int]:
    return 2 * number - 1, 2 * number


def _text(label: str, chars: int) -> str:
    return hashlib.shake_128(label.encode()).hexdigest(chars // 2)
