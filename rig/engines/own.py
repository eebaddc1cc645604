"""Engines whose transactions are their own: the rig knows only their numbers, and what the engine says about each.

The driver of such an engine talks to processes. The guest starts them in the directory under test and enforces their
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rig.contract.findings import Finding, FindingKind

# Such an engine has this folder of the directory under test to itself.
OWN_FOLDER = "data"


class NoResult(Exception):
    """A process did something that leaves no result; `words` follow its name, for example `died by SIGSEGV`."""

    def __init__(self, kind: FindingKind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


class Ended(NoResult):
    """A process ended in the middle of a transaction."""


@dataclass(frozen=True)
class Reply:
    """What an engine says about a transaction that it has carried out."""

    # The name of the step, if the engine gives it one.
    step: str = ""
    # Why the transaction failed, in the engine's words, perhaps none; None if it is acknowledged.
    failure: str | None = None

    def mark(self, number: int) -> str:
        """Return the mark that acknowledges the transaction, with the name of its step."""
        return f"ack-{number}.{self.step}" if self.step else f"ack-{number}"


class Process(Protocol):
    """A process of the engine, in the directory under test."""

    def line(self) -> str | None:
        """Return the next line of its standard output, None after the last; raise NoResult if it prints without end."""

    def has_more(self) -> bool:
        """Return whether it has printed more than was read."""

    def say(self, line: str) -> None:
        """Write a line to its standard input."""

    def end(self) -> int:
        """Wait for its end; return its exit code, or raise NoResult if a signal killed it."""

    @property
    def last_words(self) -> str:
        """Return its first and last words on standard error, as the end of a sentence; empty if it wrote nothing."""

    @property
    def leftovers(self) -> str:
        """Return what it left behind when it ended, as words to put after its name; empty for nothing."""


# Start a process with these words: settings of its environment, such as `NAME=VALUE`, the path of the program, and its
# arguments.
Start = Callable[[Sequence[str]], Process]


@dataclass(frozen=True)
class Task:
    """What a scenario asks for. The transactions are numbered from 1."""

    settings: Mapping[str, str]
    directory: str
    seed: int
    transaction_count: int
    # In a later life, in a directory that is not empty: the last transaction that is there, and the last to carry out.
    after: int | None = None
    last: int = 0
    # Transactions that returned an error and are not acknowledged: each may be there or not.
    failed: tuple[int, ...] = ()
    # How many transactions may be in flight at a time (`ClientsSession`).
    client_count: int = 1


class OwnSession(Protocol):
    """The engine at work. Every method may raise NoResult."""

    def commit(self, number: int) -> Reply:
        """Have the next transaction carried out; return what the engine says of it, or raise Ended."""

    def settings(self) -> dict[str, str]:
        """Return every setting and version that matters, as far as they can be read back; `version` is among them."""

    def close(self) -> None:
        """Let the engine end after its last transaction."""


@runtime_checkable
class OwnDriver(Protocol):
    """The module `driver` of an engine whose transactions are its own."""

    def session(self, start: Start, task: Task) -> OwnSession:
        """Return the engine at work; nothing happens before its first transaction.

        The directory is empty, or holds what the engine recovered (`Task.after`).
        """

    def recovered(self, start: Start, task: Task) -> Finding:
        """Have the engine recover, and return what it found; raise NoResult if a process fails."""


class ClientsSession(Protocol):
    """The engine at work for several clients. Client c carries out transactions c, c + `Task.client_count`, and so on.

    Each client has one transaction in flight at a time. Every method may raise NoResult.
    """

    def release(self, numbers: Sequence[int]) -> None:
        """Let clients go on, each with its next transaction; first of all, the engine starts with one of each."""

    def answer(self) -> tuple[int, Reply]:
        """Return the next transaction that is over, and what the engine says of it; raise Ended."""

    def close(self) -> None:
        """Let the engine end after its last transaction."""


@runtime_checkable
class ClientsDriver(OwnDriver, Protocol):
    """The driver of such an engine that can have several transactions in flight."""

    def clients(self, start: Start, task: Task) -> ClientsSession:
        """Return the engine at work for several clients; nothing happens before its first transactions."""
