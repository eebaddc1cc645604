"""The one sync that a transaction of the append-only log makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rig.engines.syncs import Call, CallName, SyncKind, SyncPhase

KINDS = {"log-commit": SyncKind("log-commit", "log", SyncPhase.COMMIT)}
SAMPLE_TUNING: Mapping[str, str] = {}


class Namer:
    """Names the syncs of one process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def begin(self) -> None:
        """Begin a transaction; nothing is counted."""

    def name(self, call: Call) -> str:
        """Return the kind of a sync; empty for any other call."""
        return "log-commit" if call.name is CallName.SYNC and call.role == "log" else ""


def role(path: str, directory: str) -> str:
    """Return the role of a file for the log."""
    return "log" if Path(path) == Path(directory, "append.log") else ""


def word(call: Call) -> str:
    """Return a call as spelled in a sequence."""
    return call.role if call.name is CallName.SYNC else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a transaction does."""
    return ("log-commit",) if settings["sync"] == "always" else ("",)
