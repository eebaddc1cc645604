"""What the rig asks of an engine's databases and of its driver.

Every protocol is a duck type: an engine implements those that it can. A driver with transactions of its own is in
`rig.engines.own`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from rig.workloads.events import EventKind
from rig.workloads.operations import Content, Operation, Row, Table


@runtime_checkable
class Database(Protocol):
    """An open database. Opening recovers it; every method may raise the engine's own exceptions."""

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction, or roll it back if it ends so; return after the engine has acknowledged it."""

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the given tables; leave out tables that do not exist."""

    def problems(self) -> list[str]:
        """Return what the engine's own checks complain about; empty if they find nothing."""

    def settings(self) -> dict[str, str]:
        """Return every setting and version that matters, READ BACK from the engine; `version` is among them."""

    def close(self) -> None:
        """Close as a careful program would."""


@runtime_checkable
class EventfulDatabase(Database, Protocol):
    """A database of an engine whose spec lists events that the engine carries out itself."""

    def happen(self, kind: EventKind, variant: str) -> bool:
        """Carry out an event; return False if it has no meaning under these settings."""


@runtime_checkable
class ReadableDatabase(Database, Protocol):
    """A database in which a single row can be looked up."""

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key, without the key, or None."""


@runtime_checkable
class Session(Protocol):
    """One of several connections to a database."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after the engine has acknowledged it."""

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key, without the key, or None."""


@runtime_checkable
class RevocableSession(Session, Protocol):
    """A session whose transactions the engine may refuse because another connection is at work."""

    def rollback(self) -> None:
        """Roll back the transaction that was refused."""


@runtime_checkable
class LeavableDatabase(Database, Protocol):
    """A database that a reader can leave sooner than by closing it."""

    def leave(self) -> None:
        """Close, but leave work to the next opening that it can do too, such as a checkpoint."""


@runtime_checkable
class ObservantDatabase(Database, Protocol):
    """A database of an engine whose spec lists situations."""

    def observe(self) -> None:
        """Watch the files from now on, not before: on some file systems looking changes what happens."""

    def seen(self) -> list[str]:
        """Return the situations, in words of `Spec.situations`, that came about since the last call."""


@runtime_checkable
class CrowdedDatabase(Database, Protocol):
    """A database that several connections write to at a time; the engine decides in which order."""

    def claim(self, table: str, column: str) -> int | None:
        """Begin a transaction as the only writer; return a column's largest value, None if another connection writes.

        Never wait for the other connection.
        """

    def carry_out(self, operations: Sequence[Operation]) -> None:
        """Carry out operations in the transaction that was begun."""

    def finish(self) -> bool:
        """Commit; return False if the commit has to be retried because another connection is at work."""

    def rollback(self) -> None:
        """Roll back the transaction that was begun."""


@runtime_checkable
class EnduringDatabase(Database, Protocol):
    """What error faults also need from a database while requests to its disk fail."""

    def rollback(self) -> None:
        """Roll back the transaction that raised, if the engine has not done so itself."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log that checkpoints move into the database."""

    def checkpoint(self) -> None:
        """Move the log into the database now."""

    def shrink_log(self) -> None:
        """Free the space of the log, so that the next transaction has to allocate space."""

    def forget(self) -> None:
        """Drop the pages that the connection holds in memory."""


@runtime_checkable
class Driver(Protocol):
    """The module `driver` of an engine's package."""

    def open_database(self, directory: str, settings: Mapping[str, str]) -> Database:
        """Open the database in a directory, or make a new one there, and recover it if necessary."""


@runtime_checkable
class ServingDriver(Driver, Protocol):
    """A driver whose databases are servers."""

    def connected(self, directory: str) -> Session:
        """Return a further connection to the server that runs on the database in a directory."""


@runtime_checkable
class ObservantDriver(Driver, Protocol):
    """A driver that can say what an opening would meet in the files of a closed database."""

    def met(self, directory: str) -> list[str]:
        """Return what opening the database will meet, in words of `Spec.met`; never raise, whatever is there."""


@runtime_checkable
class EnduringDriver(Driver, Protocol):
    """A driver that can be measured under error faults: its databases are `EnduringDatabase`s."""

    def is_fault(self, error: Exception) -> bool:
        """Return whether an error is due to the disk or its content, and not to a mistake in the program."""

    def is_mapped(self, name: str) -> bool:
        """Return whether a file of that name is mapped into memory, so that its pages cannot be dropped."""


def enduring(database: object) -> EnduringDatabase:
    """Return the database as one that can be measured under error faults; raise TypeError if it cannot."""
    if not isinstance(database, EnduringDatabase):
        raise TypeError(
            f"{type(database).__name__} lacks what error faults need of a database; see docs/extend/engine.md"
        )
    return database
