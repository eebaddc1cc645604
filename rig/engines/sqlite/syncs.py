"""The calls that make a transaction of SQLite durable: a name for each sync, and the known sequences.

In rollback journal modes the names count within a transaction: `journal1` is the first sync of the journal. The kinds:

    kind                 role       phase       what it makes durable
    journal1             journal    commit      the original pages (at FULL without their number in the header)
    directory1           directory  creation    the name of the journal
    journal2             journal    commit      FULL: that number; PERSIST at NORMAL: the journal's end
    database1            database   commit      the new pages
    journal3             journal    commit      the journal's end: truncated to nothing, or its header zeroed
    directory2           directory  commit      the removal of the journal's name
    wal-header           wal        checkpoint  the header of a WAL that restarts, with its new salt
    wal-directory        directory  creation    the name of the WAL; only while the database is created
    wal-commit           wal        commit      the frames of a transaction
    wal-checkpoint       wal        checkpoint  all frames, before the first of them goes into the database
    database-checkpoint  database   checkpoint  the pages that a checkpoint has written

A transaction over two databases makes the calls of each; calls of the attached one begin with `other-`. If both have a
rollback journal and are synced at all, a super-journal names the two journals, and its removal is the commit:

    super                super      commit      the names of the journals
    super-directory      directory  creation    the name of the super-journal
    super-end            directory  commit      the removal of its name

`rig.engines.sqlite.sequences` has what a transaction does under each setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rig.engines.sqlite.sequences import SEQUENCES, known_sequences
from rig.engines.syncs import Call, CallName, SyncKind, SyncPhase, by_name

__all__ = ["KINDS", "SAMPLE_TUNING", "SEQUENCES", "Namer", "role", "sequences", "word"]

_COMMIT, _CHECKPOINT, _CREATION = SyncPhase.COMMIT, SyncPhase.CHECKPOINT, SyncPhase.CREATION
_OTHER, _SUPER = "other-", "super"
_OF_ONE = (
    SyncKind("journal1", "journal", _COMMIT),
    SyncKind("directory1", "directory", _CREATION),
    SyncKind("journal2", "journal", _COMMIT),
    SyncKind("database1", "database", _COMMIT),
    SyncKind("journal3", "journal", _COMMIT),
    SyncKind("directory2", "directory", _COMMIT),
    SyncKind("wal-header", "wal", _CHECKPOINT),
    SyncKind("wal-directory", "directory", _CREATION),
    SyncKind("wal-commit", "wal", _COMMIT),
    SyncKind("wal-checkpoint", "wal", _CHECKPOINT),
    SyncKind("database-checkpoint", "database", _CHECKPOINT),
)
KINDS = by_name(
    *_OF_ONE,
    SyncKind("super", _SUPER, _COMMIT),
    SyncKind("super-directory", "directory", _CREATION),
    SyncKind("super-end", "directory", _COMMIT),
    *(
        SyncKind(f"{_OTHER}{sync.name}", sync.role if sync.role == "directory" else f"{_OTHER}{sync.role}", sync.phase)
        for sync in _OF_ONE
    ),
)
_WAL_HEADER_BYTES = 32
_DROPS = {CallName.UNLINK: "unlink", CallName.TRUNCATE: "ftruncate"}

# A sample of a dozen transactions must see a checkpoint.
SAMPLE_TUNING: Mapping[str, str] = {"wal_autocheckpoint": "20"}


class Namer:
    """Names the calls of one connection, in order; `begin` marks where each transaction begins."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._files = {"": _OneNamer(settings["journal_mode"], settings["synchronous"])}
        if attached := settings.get("attach"):
            self._files[_OTHER] = _OneNamer(attached, settings["synchronous"])
        # The prefix of the last synced or unlinked file's role: a sync of the directory is for that file.
        self._last = ""
        self._super_gone = False

    def begin(self) -> None:
        """Begin a transaction: restart the counts."""
        for file_names in self._files.values():
            file_names.begin()
        self._last, self._super_gone = "", False

    def name(self, call: Call) -> str:
        """Return the kind of a sync, for example `wal-commit`; empty for any other call or an unknown role."""
        if call.role == "directory":
            return self._of_directory(call)
        owner = next((word for word in (_OTHER, _SUPER) if call.role.startswith(word)), "")
        if call.role and call.name in {CallName.SYNC, CallName.UNLINK}:
            self._last = owner
        if owner == _SUPER:
            self._super_gone = self._super_gone or call.name is CallName.UNLINK
            return _SUPER if call.name is CallName.SYNC else ""
        return self._of(owner, replace(call, role=call.role.removeprefix(owner)))

    def _of_directory(self, call: Call) -> str:
        if self._last != _SUPER:
            return self._of(self._last, call)
        return ("super-end" if self._super_gone else "super-directory") if call.name is CallName.SYNC else ""

    def _of(self, owner: str, call: Call) -> str:
        name = self._files[owner].name(call) if owner in self._files else ""
        return f"{owner}{name}" if name else ""


class _OneNamer:
    """Names the calls on the files of one database."""

    def __init__(self, journal_mode: str, synchronous: str) -> None:
        self._is_wal = journal_mode == "wal"
        # At NORMAL a commit is not synced, so synced frames belong to a checkpoint.
        self._syncs_commits = synchronous in ("full", "extra")
        self._header_written = self._frames_written = False
        self.begin()

    def begin(self) -> None:
        """Begin a transaction: restart the counts."""
        self._journal_count = self._database_count = 0
        self._journal_gone = False

    def name(self, call: Call) -> str:
        """Return the kind of a sync, for example `wal-commit`; empty for any other call or an unknown role."""
        if call.role == "wal" and call.name is CallName.WRITE:
            if call.offset_bytes < _WAL_HEADER_BYTES:
                self._header_written = True
            else:
                self._frames_written = True
        if call.role == "journal" and call.name is CallName.UNLINK:
            self._journal_gone = True
        if call.name is not CallName.SYNC:
            return ""
        return self._wal_kind(call.role) if self._is_wal else self._rollback_kind(call.role)

    def _wal_kind(self, role: str) -> str:
        if role == "wal":
            header, frames = self._header_written, self._frames_written
            self._header_written = self._frames_written = False
            if header:
                return "wal-header"
            return "wal-commit" if frames and self._syncs_commits else "wal-checkpoint"
        return {"database": "database-checkpoint", "directory": "wal-directory"}.get(role, "")

    def _rollback_kind(self, role: str) -> str:
        if role == "journal":
            self._journal_count += 1
            return f"journal{self._journal_count}"
        if role == "database":
            self._database_count += 1
            return f"database{self._database_count}"
        return {"directory": "directory2" if self._journal_gone else "directory1"}.get(role, "")


def role(path: str, directory: str) -> str:
    """Return the role of a file for the database in `directory`; empty for an unrelated file."""
    if path.rstrip("/") == directory.rstrip("/"):
        return "directory"
    if not path.startswith(f"{directory.rstrip('/')}/"):
        return ""
    match = re.search(r"(/other)?\.db(?:-(journal|wal|shm|mj[0-9A-F]+))?(?: \(deleted\))?\Z", path)
    if not match:
        return ""
    if (match[2] or "").startswith("mj"):
        return _SUPER
    return (_OTHER if match[1] else "") + (match[2] or "database")


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: the role that is synced, or what drops a journal, such as `unlink`."""
    if call.name is CallName.SYNC:
        return call.role
    owner = call.role.removesuffix("journal") if call.role.endswith("journal") else f"{call.role}-"
    return f"{owner}{_DROPS[call.name]}" if call.name in _DROPS and owner in {"", _OTHER, f"{_SUPER}-"} else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    return known_sequences(settings)
