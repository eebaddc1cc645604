"""Engines whose transactions are their own: the rig knows only their numbers, and what the engine says about each.

The driver of such an engine talks to processes. The guest starts them in the directory under test and enforces their
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rig.contract.findings import Finding, FindingKind


class Grief(Exception):
    """A process did something that leaves no result; `words` follow its name, for example `died by SIGSEGV`."""

    def __init__(self, kind: FindingKind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


class Process(Protocol):
    """A process of the engine, in the directory under test."""

    def line(self) -> str | None:
        """Return the next line of its standard output, None after the last; raise Grief if it prints without end."""

    def has_more(self) -> bool:
        """Return whether it has printed more than was read."""

    def say(self, line: str) -> None:
        """Write a line to its standard input."""

    def end(self) -> int:
        """Wait for its end; return its exit code, or raise Grief if a signal killed it."""

    @property
    def said(self) -> str:
        """Return the last words on its standard error, as the end of a sentence; empty if it wrote nothing."""

    @property
    def left(self) -> str:
        """Return what it left behind when it ended, as words to put after its name; empty for nothing."""


# Start a process with these arguments; the first one is the path of the program.
Start = Callable[[Sequence[str]], Process]


@dataclass(frozen=True)
class Task:
    """What a scenario asks for. The transactions are numbered from 1."""

    settings: Mapping[str, str]
    directory: str
    seed: int
    transaction_count: int


class OwnSession(Protocol):
    """The engine at work. Every method may raise Grief."""

    def commit(self, number: int) -> None:
        """Have the next transaction carried out; return once it is acknowledged."""

    def settings(self) -> dict[str, str]:
        """Return every setting and version that matters, as far as they can be read back; `version` is among them."""

    def close(self) -> None:
        """Let the engine end after its last transaction."""


@runtime_checkable
class OwnDriver(Protocol):
    """The module `driver` of an engine whose transactions are its own."""

    def session(self, start: Start, task: Task) -> OwnSession:
        """Return the engine at work in an empty directory; nothing happens before the first transaction."""

    def recovered(self, start: Start, task: Task) -> Finding:
        """Have the engine recover, and return what it found; raise Grief if a process fails."""
