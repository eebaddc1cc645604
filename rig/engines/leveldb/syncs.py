"""The calls that make a transaction of LevelDB durable.

    kind             role       phase       what it makes durable
    log-commit       log        commit      the record of a batch; only with sync
    table            table      checkpoint  a table that has been written from memory or by compaction
    table-directory  directory  checkpoint  the names of new files, before the manifest that lists them
    manifest         manifest   checkpoint  the list of tables that count; older logs and tables are then removed

A background thread makes the last three when a buffer in memory is full, during any transaction. No sync makes the
names of new logs durable, or the name `CURRENT`, which a rename replaces whenever the database is opened: LevelDB
leaves both to the file system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.syncs import Call, CallName, RoleNamer, SyncKind, SyncPhase, by_name, role_by_name

KINDS = by_name(
    SyncKind("log-commit", "log", SyncPhase.COMMIT),
    SyncKind("table", "table", SyncPhase.CHECKPOINT),
    SyncKind("table-directory", "directory", SyncPhase.CHECKPOINT),
    SyncKind("manifest", "manifest", SyncPhase.CHECKPOINT),
)
_KIND_OF = {kind.role: kind.name for kind in KINDS.values()}
SAMPLE_TUNING: Mapping[str, str] = {}
_ROLES = (
    (re.compile(r"\d+\.log"), "log"),
    (re.compile(r"\d+\.(?:ldb|sst)"), "table"),
    (re.compile(r"MANIFEST-\d+"), "manifest"),
    (re.compile(r"CURRENT|\d+\.dbtmp"), "current"),
)
_FULL = "table table-directory manifest"
_SEQUENCES: Mapping[str, tuple[str, ...]] = {
    "async": ("", _FULL),
    "sync": ("log-commit", f"log-commit {_FULL}", f"{_FULL} log-commit"),
}


class Namer(RoleNamer):
    """Names the syncs of one process after the role of the file."""

    def __init__(self, settings: Mapping[str, str]) -> None:  # noqa: ARG002 - as every namer
        super().__init__(_KIND_OF)


def role(path: str, directory: str) -> str:
    """Return the role of a file for the database in `directory`; empty for an unrelated file."""
    return role_by_name(path, directory, _ROLES)


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: the role that is synced."""
    return call.role if call.name is CallName.SYNC else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    return _SEQUENCES.get(settings.get("writes", ""), ())
