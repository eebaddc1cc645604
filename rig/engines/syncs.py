"""What may be known of an engine's system calls: a module `syncs` in the package of the engine.

An engine without such a module is recorded all the same; its sync calls have no names, so none can be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from rig.engines.engine import Engine


class CallName(StrEnum):
    """What a supervised system call does to a file."""

    SYNC = "sync"
    # Starts or awaits writeback, and makes nothing durable: sync_file_range.
    WRITEBACK = "writeback"
    WRITE = "write"
    TRUNCATE = "truncate"
    UNLINK = "unlink"
    RENAME = "rename"


class SyncPhase(StrEnum):
    """What a sync call is for."""

    COMMIT = "commit"
    CHECKPOINT = "checkpoint"
    CREATION = "creation"


@dataclass(frozen=True)
class SyncKind:
    """One of the syncs that an engine makes; `role` is that of the file synced."""

    name: str
    role: str
    phase: SyncPhase


@dataclass(frozen=True)
class Call:
    """One supervised call. The offset is that of a write, or the new length of a truncated file; -1 if unknown."""

    name: CallName
    role: str
    offset_bytes: int = -1

    def __str__(self) -> str:
        place = f" at {self.offset_bytes}" if self.offset_bytes >= 0 else ""
        return f"{self.name} of {self.role or 'another file'}{place}"


class CallNamer(Protocol):
    """Names the calls of one process, in their order."""

    def begin(self) -> None:
        """Take note that a transaction begins."""

    def name(self, call: Call) -> str:
        """Return the kind of a sync; empty for any other call."""


class _NamerOf(Protocol):
    def __call__(self, settings: Mapping[str, str]) -> CallNamer: ...


@runtime_checkable
class Syncs(Protocol):
    """What a module about an engine's syncs offers."""

    KINDS: Mapping[str, SyncKind]
    # Settings with which a dozen transactions do all that there is to see.
    SAMPLE_TUNING: Mapping[str, str]

    @property
    def Namer(self) -> _NamerOf:  # noqa: N802 - the name of a class
        """Return the class that names calls."""

    def role(self, path: str, directory: str) -> str:
        """Return what a file is to the database in a directory; empty for a stranger."""

    def word(self, call: Call) -> str:
        """Return a call as it stands in a sequence; empty if it is not part of one."""

    def sequences(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the known sequences of a transaction's sync kinds and other words; empty if none are known."""


def syncs_of(engine: Engine) -> Syncs | None:
    """Return what is known of an engine's syncs, or None; raise TypeError if its module `syncs` lacks something."""
    found = engine.part("syncs")
    if found is not None and not isinstance(found, Syncs):
        raise TypeError(f"{engine.module}.syncs lacks what the rig asks of it; see docs/extending.md")
    return found


def kinds(engine: Engine, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of sync that transactions of these settings make, in the order of the engine's own list."""
    syncs = syncs_of(engine)
    if syncs is None:
        return ()
    found = {kind for sequence in syncs.sequences(settings) for kind in sequence.split()}
    return tuple(kind for kind in syncs.KINDS if kind in found)


def in_roles(engine: Engine, sequence: str) -> str:
    """Return a sequence of kinds as it is measured, such as `journal directory journal database unlink`, or `none`."""
    syncs = syncs_of(engine)
    known = syncs.KINDS if syncs else {}
    return " ".join(known[word].role if word in known else word for word in sequence.split()) or NO_CALLS


NO_CALLS = "none"
