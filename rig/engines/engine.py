"""What the rig asks of a database engine, and the list of engines there are."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from rig.errors import UsageError
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


class Engine(Protocol):
    """A module of this package."""

    # setting -> its choices; their values, in this order, make the settings part of a test id.
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
