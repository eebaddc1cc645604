"""The calls that make a transaction of RocksDB durable.

    kind        role       phase       what it makes durable
    log-commit  log        commit      the record of a batch; only with sync or FlushWAL
    log-closed  log        checkpoint  a full log, before a table holds anything newer; only without sync
    directory   directory  checkpoint  the names of a new log, of new tables
    table       table      checkpoint  a table that has been written from memory or by compaction
    manifest    manifest   checkpoint  the list of tables that count; older logs and tables are then removed

Background threads make all but the first, for one column family after the other, when logs or buffers in memory have
become too large. The first transaction that syncs a new log syncs the old one, too.
The files `CURRENT`, `OPTIONS` and `IDENTITY` are written, synced and renamed when a database is opened or gets a
column family. Names are synced with their directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.rocksdb.options import SETTING, mode
from rig.engines.syncs import Call, CallName, RoleNamer, SyncKind, SyncPhase, by_name, role_by_name

KINDS = by_name(
    SyncKind("log-commit", "log", SyncPhase.COMMIT),
    SyncKind("log-closed", "log", SyncPhase.CHECKPOINT),
    SyncKind("directory", "directory", SyncPhase.CHECKPOINT),
    SyncKind("table", "table", SyncPhase.CHECKPOINT),
    SyncKind("manifest", "manifest", SyncPhase.CHECKPOINT),
)
SAMPLE_TUNING: Mapping[str, str] = {}
_ROLES = (
    (re.compile(r"\d+\.log"), "log"),
    (re.compile(r"\d+\.(?:sst|blob)"), "table"),
    (re.compile(r"MANIFEST-\d+"), "manifest"),
    (re.compile(r"OPTIONS-\d+(?:\.dbtmp)?"), "options"),
    (re.compile(r"CURRENT|\d+\.dbtmp"), "current"),
    (re.compile(r"IDENTITY"), "identity"),
)
_SYNCED = ("log-commit", "log-commit log-commit")
_UNSYNCED = ("", "log-closed")
_WITHOUT_LOG = ("",)
_KIND_OF = {kind.role: kind.name for kind in KINDS.values()}


class Namer(RoleNamer):
    """Names the syncs of one process by the role of the file; for a log it matters whether commits sync."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        writes, _ = mode(settings[SETTING])
        super().__init__(_KIND_OF | {"log": "log-commit" if writes.syncs else "log-closed"})


def role(path: str, directory: str) -> str:
    """Return the role of a file for the database in `directory`; empty for an unrelated file."""
    return role_by_name(path, directory, _ROLES)


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: a log that is synced; all else happens in the background."""
    return call.role if call.name is CallName.SYNC and call.role == "log" else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    writes, _ = mode(settings[SETTING])
    return _SYNCED if writes.syncs else _WITHOUT_LOG if writes.disable_wal else _UNSYNCED


def background(settings: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG001 - the same for all
    """Return the kinds of sync that these settings make in the background."""
    return tuple(kind.name for kind in KINDS.values() if kind.phase is SyncPhase.CHECKPOINT and kind.role != "log")
