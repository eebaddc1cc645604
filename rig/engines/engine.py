"""What the rig asks of a database engine, and the list of engines there are."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from rig.contract.errors import UsageError
from rig.workloads.operations import Content, Operation, Table

NAMES = ("sqlite",)


class Database(Protocol):
    """An open database. Opening recovers it; every method may raise the engine's own exceptions."""

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after the engine has said that it is committed."""

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of every table."""

    def problems(self) -> list[str]:
        """Return what the engine's own checks complain about; empty when they are content."""

    def settings(self) -> dict[str, str]:
        """Return every setting and version that matters, READ BACK from the engine."""

    def close(self) -> None:
        """Close as a careful program would."""


class EnduringDatabase(Database, Protocol):
    """What the error arm asks besides, of a database whose requests fail."""

    def rollback(self) -> None:
        """Give up the transaction that raised, if the engine has not done so itself."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log that is moved into the database now and then."""

    def checkpoint(self) -> None:
        """Do so now."""

    def shrink_log(self) -> None:
        """Give back the space of the log, so that the next transaction has to take some."""

    def forget(self) -> None:
        """Drop the pages that the connection holds in memory."""


class EnduringEngine(Protocol):
    """A module whose databases can be asked that."""

    def open_database(self, directory: str, settings: Mapping[str, str]) -> EnduringDatabase:
        """Open as `Engine.open_database` does."""

    def is_fault(self, error: Exception) -> bool:
        """Return whether an error tells of the disk or of what is on it, and not of a mistake of the program."""


class Engine(Protocol):
    """A module of this package."""

    # setting -> its choices; their values, in this order, make the settings part of a test id. The last setting says
    # how much is synced, and its choices begin with the weakest.
    SETTINGS: Mapping[str, tuple[str, ...]]
    # setting -> default, for what matters to an experiment and is not part of its id.
    TUNING: Mapping[str, str]
    # setting -> those of its choices under which the engine promises nothing when the power goes.
    UNPROTECTED: Mapping[str, tuple[str, ...]]

    def open_database(self, directory: str, settings: Mapping[str, str]) -> Database:
        """Open the database in a directory, or make a new one there, and recover it if need be."""


def named(name: str) -> Engine:
    """Return the engine of that name; raise UsageError naming the choices."""
    if name not in NAMES:
        raise UsageError(f"unknown engine {name!r}; there are: {', '.join(NAMES)}")
    engine: Engine = importlib.import_module(f"rig.engines.{name}")
    return engine
