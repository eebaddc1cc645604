"""What is known about an engine's system calls: the optional module `syncs` of the engine's package.

An engine without this module can still be recorded, but its sync calls have no names, so no sync can be dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from rig.engines.engine import Engine


class CallName(StrEnum):
    """What a supervised system call does to a file."""

    SYNC = "sync"
    # Starts or awaits writeback but makes nothing durable: sync_file_range.
    WRITEBACK = "writeback"
    WRITE = "write"
    TRUNCATE = "truncate"
    # Gives a file blocks, and a size that has room for them.
    ALLOCATE = "fallocate"
    UNLINK = "unlink"
    RENAME = "rename"
    # Makes a file or a directory.
    CREATE = "create"
    # No call: in this transaction the file is mapped into memory, to be written to there.
    MAP = "map"


class SyncPhase(StrEnum):
    """What a sync call is for."""

    COMMIT = "commit"
    CHECKPOINT = "checkpoint"
    CREATION = "creation"


@dataclass(frozen=True)
class SyncKind:
    """One of the syncs that an engine makes; `role` is the role of the file synced."""

    name: str
    role: str
    phase: SyncPhase


@dataclass(frozen=True)
class Call:
    """One supervised call. The offset is where a write begins, or the new length of a truncated file; -1 if unknown."""

    name: CallName
    role: str
    offset_bytes: int = -1
    path: str = ""
    # Known if calls are reported in detail: how much is written, where a renamed file goes, the thread and its program.
    length_bytes: int = -1
    new_path: str = ""
    thread: int = 0
    program: str = ""
    # Whether it is a write to a file that was opened with O_SYNC or O_DSYNC.
    is_synced: bool = False

    def __str__(self) -> str:
        place = f" at {self.offset_bytes}" if self.offset_bytes >= 0 else ""
        return f"{self.name} of {self.role or 'another file'}{place}"


class CallNamer(Protocol):
    """Names the calls of one process, in order."""

    def begin(self) -> None:
        """Begin a transaction."""

    def name(self, call: Call) -> str:
        """Return the kind of a sync; empty for any other call."""


class RoleNamer:
    """Names the syncs of a process by the role of the file alone."""

    def __init__(self, kind_of: Mapping[str, str]) -> None:
        self._kind_of = kind_of

    def begin(self) -> None:
        """Begin a transaction; nothing is counted."""

    def name(self, call: Call) -> str:
        """Return the kind of a sync; empty for any other call."""
        return self._kind_of.get(call.role, "") if call.name is CallName.SYNC else ""


class _NamerOf(Protocol):
    def __call__(self, settings: Mapping[str, str]) -> CallNamer: ...


@runtime_checkable
class Syncs(Protocol):
    """What a module `syncs` offers."""

    KINDS: Mapping[str, SyncKind]
    # Settings with which a dozen transactions make every kind of call.
    SAMPLE_TUNING: Mapping[str, str]

    @property
    def Namer(self) -> _NamerOf:  # noqa: N802 - the name of a class
        """Return the class that names calls."""

    def role(self, path: str, directory: str) -> str:
        """Return the role of a file for the database in a directory; empty for an unrelated file."""

    def word(self, call: Call) -> str:
        """Return a call as spelled in a sequence; empty if sequences leave it out."""

    def sequences(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the known sequences of a transaction's sync kinds and other words; empty if none are known."""


@runtime_checkable
class BackgroundSyncs(Syncs, Protocol):
    """What the module also offers if threads of the engine sync too; its `word` leaves out the calls of these threads.

    Timing decides into which transaction such a call falls, so no known sequence contains it.
    """

    def background(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the kinds of sync that these settings make in the background."""


def syncs_of(engine: Engine) -> Syncs | None:
    """Return an engine's module `syncs`, or None; raise TypeError if it lacks something."""
    module = engine.part("syncs")
    if module is not None and not isinstance(module, Syncs):
        raise TypeError(f"{engine.module}.syncs lacks what the rig needs; see docs/extend/engine.md")
    return module


# A word of hexadecimal digits, of two as in names of folders or of at least eight, or a number in any other word. A
# folder of two such letters is one of these too, unless it is called `db`.
_DIFFERING = re.compile(
    r"(?<![0-9A-Za-z])(?=[a-f]*[0-9])(?:[0-9a-f]{2}|[0-9a-f]{8,})(?![0-9A-Za-z])"
    r"|(?<![^/])(?!db/)[a-f]{2}(?=/)|[0-9]+"
)


def pattern_of(path: str) -> str:
    """Return a path with N for whatever may differ between two runs of a program: numbers and random words."""
    return _DIFFERING.sub("N", path)


def by_name(*kinds: SyncKind) -> Mapping[str, SyncKind]:
    """Return the syncs that an engine makes by their names, in this order."""
    return {kind.name: kind for kind in kinds}


def kinds(engine: Engine, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of sync that transactions with these settings make, in the order of the engine's own list."""
    syncs = syncs_of(engine)
    if syncs is None:
        return ()
    present = {kind for sequence in syncs.sequences(settings) for kind in sequence.split()}
    if isinstance(syncs, BackgroundSyncs):
        present |= set(syncs.background(settings))
    return tuple(kind for kind in syncs.KINDS if kind in present)


def in_roles(engine: Engine, sequence: str) -> str:
    """Return a sequence of kinds as measured, for example `journal directory journal database unlink`, or `none`."""
    syncs = syncs_of(engine)
    known = syncs.KINDS if syncs else {}
    return " ".join(known[word].role if word in known else word for word in sequence.split()) or NO_CALLS


NO_CALLS = "none"


def role_by_name(path: str, directory: str, roles: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Return the role of a file of a database that is a directory, by the first pattern that fits its whole name.

    The directory itself is `directory`. Empty for an unrelated file.
    """
    folder, _, name = path.removesuffix(" (deleted)").rpartition("/")
    if path.rstrip("/") == directory.rstrip("/"):
        return "directory"
    if folder != directory.rstrip("/"):
        return ""
    return next((role for pattern, role in roles if pattern.fullmatch(name)), "")
