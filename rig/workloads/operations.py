"""The vocabulary of workloads: tables, the operations of a transaction, and the content of a whole database.

A table has an integer key and named columns; one column may be indexed and may refer to another table. That is
enough to give a relational engine separate pages for tables and indexes, and simple enough for a key-value engine.

A transaction is a sequence of operations. Besides rows it may change which tables and indexes there are, and may take
back a part of itself: savepoints nest, and a rollback to the innermost one keeps it. An engine has some `Skill`s;
`within` leaves out what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

Value = int | str
Row = tuple[Value, ...]
# table -> key -> the row without its key; a table that does not exist is absent. Indexes are not part of it.
Content = Mapping[str, Mapping[int, Row]]
Draft = dict[str, dict[int, Row]]


class Verb(StrEnum):
    """What an operation does."""

    # To one row.
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    # To a table, with its index if it has one, or to the index of a table that exists.
    MAKE_TABLE = "make-table"
    DROP_TABLE = "drop-table"
    MAKE_INDEX = "make-index"
    DROP_INDEX = "drop-index"
    # To the transaction itself.
    SAVEPOINT = "savepoint"
    RELEASE = "release"
    ROLL_BACK_TO = "roll-back-to"
    # The last operation of a transaction that leaves the content as it was.
    ROLL_BACK = "roll-back"


ROW_VERBS = frozenset({Verb.INSERT, Verb.UPDATE, Verb.DELETE})
_SCHEMA_VERBS = frozenset({Verb.MAKE_TABLE, Verb.DROP_TABLE, Verb.MAKE_INDEX, Verb.DROP_INDEX})


class Skill(StrEnum):
    """What an engine may be able to do besides changing rows in a transaction that it commits."""

    SCHEMA = "schema changes in a transaction"
    SAVEPOINTS = "savepoints"
    ROLLBACK = "rollback"
    WRITERS = "several writers at a time"


@dataclass(frozen=True)
class Table:
    """A table; its key is an integer column called `id`."""

    name: str
    columns: tuple[tuple[str, type], ...]
    index: str = ""
    # column -> table that it refers to.
    refers: tuple[str, str] | None = None


@dataclass(frozen=True)
class Operation:
    """One operation. `row` holds all columns but the key; only an insert and an update have one."""

    verb: Verb
    table: str = ""
    key: int = 0
    row: Row = ()
    # For a change of the schema: the table, or the table with the index that is made or dropped.
    made: Table | None = None

    @property
    def user_bytes(self) -> int:
        """Return the bytes of key and values that the user passes."""
        if self.verb not in ROW_VERBS:
            return 0
        return 8 + sum(8 if isinstance(value, int) else len(value) for value in self.row)


def apply(content: Draft, operations: Iterable[Operation]) -> None:
    """Apply operations to a content in place; raise ValueError for one that does not fit it, and change nothing."""
    made, savepoints = _copy(content), list[Draft]()
    for operation in operations:
        if operation.verb is Verb.SAVEPOINT:
            savepoints.append(_copy(made))
        elif operation.verb is Verb.RELEASE:
            _innermost(savepoints)
            savepoints.pop()
        elif operation.verb is Verb.ROLL_BACK_TO:
            made = _copy(_innermost(savepoints))
        elif operation.verb is Verb.ROLL_BACK:
            made = _copy(content)
        else:
            _apply_one(made, operation)
    content.clear()
    content.update(made)


def effective(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations that are left when the transaction ends: without savepoints and what was rolled back."""
    kept: list[Operation] = []
    savepoints: list[int] = []
    for operation in operations:
        if operation.verb is Verb.SAVEPOINT:
            savepoints.append(len(kept))
        elif operation.verb is Verb.RELEASE:
            savepoints.pop()
        elif operation.verb is Verb.ROLL_BACK_TO:
            del kept[savepoints[-1] :]
        elif operation.verb is Verb.ROLL_BACK:
            kept.clear()
        else:
            kept.append(operation)
    return tuple(kept)


def within(
    operations: Sequence[Operation], skills: Collection[Skill], tables: Sequence[Table]
) -> tuple[Operation, ...]:
    """Return what an engine with these skills can do of a transaction; `tables` are those that exist from the start.

    Without schema changes other tables never exist, without savepoints a part that is rolled back is not begun, and
    without rollback a transaction that ends with one does nothing.
    """
    kept = tuple(operations)
    if Skill.SCHEMA not in skills:
        names = {"", *(table.name for table in tables)}
        kept = tuple(
            operation for operation in kept if operation.verb not in _SCHEMA_VERBS and operation.table in names
        )
    ending = tuple(operation for operation in kept[-1:] if operation.verb is Verb.ROLL_BACK)
    if ending and Skill.ROLLBACK not in skills:
        return ()
    if Skill.SAVEPOINTS not in skills:
        return (*effective(kept[: len(kept) - len(ending)]), *ending)
    return kept


def models(
    tables: Sequence[Table],
    initial: Sequence[Operation],
    transaction: Callable[[int], Sequence[Operation]],
    transaction_count: int,
) -> tuple[Content, ...]:
    """Return the content after p transactions for every p from 0 to `transaction_count`."""
    content: Draft = {table.name: {} for table in tables}
    apply(content, initial)
    contents = [_copy(content)]
    for number in range(1, transaction_count + 1):
        apply(content, transaction(number))
        contents.append(_copy(content))
    return tuple(contents)


def _apply_one(content: Draft, operation: Operation) -> None:
    verb, name = operation.verb, operation.table
    if verb is Verb.MAKE_TABLE:
        if name in content:
            raise ValueError(f"{verb} of {name} does not fit the content: it exists")
        content[name] = {}
        return
    if name not in content:
        raise ValueError(f"{verb} of {name}/{operation.key} does not fit the content: there is no such table")
    if verb is Verb.DROP_TABLE:
        del content[name]
    elif verb in ROW_VERBS:
        _apply_to_row(content[name], operation)


def _apply_to_row(rows: dict[int, Row], operation: Operation) -> None:
    if (operation.key in rows) == (operation.verb is Verb.INSERT):
        raise ValueError(f"{operation.verb} of {operation.table}/{operation.key} does not fit the content")
    if operation.verb is Verb.DELETE:
        del rows[operation.key]
    else:
        rows[operation.key] = operation.row


def _innermost(savepoints: list[Draft]) -> Draft:
    if not savepoints:
        raise ValueError("there is no savepoint")
    return savepoints[-1]


def _copy(content: Mapping[str, Mapping[int, Row]]) -> Draft:
    return {name: dict(rows) for name, rows in content.items()}
