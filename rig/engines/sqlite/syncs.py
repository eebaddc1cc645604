"""The calls by which SQLite makes a transaction durable: a name for each sync, and the known sequences.

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

`SEQUENCES` lists what one transaction does, as measured with SQLite 3.40.1 from a log of its calls, and as described in
atomiccommit.html and wal.html of SQLite's documentation. Plain writes are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.syncs import Call, CallName, SyncKind, SyncPhase

_COMMIT, _CHECKPOINT, _CREATION = SyncPhase.COMMIT, SyncPhase.CHECKPOINT, SyncPhase.CREATION
KINDS: Mapping[str, SyncKind] = {
    kind.name: kind
    for kind in (
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
}
_WAL_HEADER_BYTES = 32
_DROPS = {CallName.UNLINK: "unlink", CallName.TRUNCATE: "ftruncate"}

_FULL = "journal1 directory1 journal2 database1"
_WAL_FULL = (
    "wal-commit",
    "wal-commit wal-checkpoint database-checkpoint",
    "wal-header wal-commit",
    "wal-header wal-commit wal-checkpoint database-checkpoint",
)
# (journal_mode, synchronous) -> what a transaction after the setup may do, the most common sequence first.
SEQUENCES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("delete", "off"): ("unlink",),
    ("delete", "normal"): ("journal1 directory1 database1 unlink",),
    ("delete", "full"): (f"{_FULL} unlink",),
    ("delete", "extra"): (f"{_FULL} unlink directory2",),
    ("truncate", "off"): ("ftruncate",),
    ("truncate", "normal"): ("journal1 directory1 database1 ftruncate",),
    **{("truncate", level): (f"{_FULL} ftruncate journal3",) for level in ("full", "extra")},
    ("persist", "off"): ("",),
    ("persist", "normal"): ("journal1 directory1 database1 journal2",),
    **{("persist", level): (f"{_FULL} journal3",) for level in ("full", "extra")},
    ("wal", "off"): ("",),
    ("wal", "normal"): (
        "",
        "wal-checkpoint database-checkpoint",
        "wal-header",
        "wal-header wal-checkpoint database-checkpoint",
    ),
    **{("wal", level): _WAL_FULL for level in ("full", "extra")},
    **{(mode, "off"): ("",) for mode in ("memory", "off")},
    **{(mode, level): ("database1",) for mode in ("memory", "off") for level in ("normal", "full", "extra")},
}
# A sample of a dozen transactions must see a checkpoint.
SAMPLE_TUNING: Mapping[str, str] = {"wal_autocheckpoint": "20"}


class Namer:
    """Names the calls of one connection, in order; `begin` marks where each transaction begins."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._is_wal = settings["journal_mode"] == "wal"
        # At NORMAL a commit is not synced, so synced frames belong to a checkpoint.
        self._syncs_commits = settings["synchronous"] in ("full", "extra")
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
    found = re.search(r"\.db(?:-(journal|wal|shm))?(?: \(deleted\))?\Z", path)
    return (found[1] or "database") if found else ""


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: the role that is synced, or `unlink` or `ftruncate` of the journal."""
    if call.name is CallName.SYNC:
        return call.role
    return _DROPS.get(call.name, "") if call.role == "journal" else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    mode, level = settings.get("journal_mode", ""), settings.get("synchronous", "")
    is_exclusive = settings.get("locking_mode") == "exclusive" and mode in {"delete", "truncate", "persist"}
    if is_exclusive and mode == "delete" and level != "off":
        # The journal stays open, so it is not deleted: its header is zeroed.
        mode = "persist"
    found = SEQUENCES.get((mode, level), ())
    if is_exclusive:
        found = tuple(one.replace("directory1 ", "") for one in found)
    if mode == "persist" and int(settings.get("journal_size_limit", "-1")) >= 0:
        # A journal that has grown past the limit is truncated to it when its transaction is over, and not synced.
        found = (*(f"{one} ftruncate".strip() for one in found), *found)
    return found
