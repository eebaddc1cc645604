"""The calls that make a transaction of PostgreSQL durable.

    kind        role     phase       what it makes durable
    wal-commit  wal      commit      the log up to the record of the commit; not with async, opendatasync or nofsync
    wal-flush   wal      checkpoint  the log, by its writer in the background; only with async
    table       table    checkpoint  tables and indexes, before the log of what they hold is removed
    state       state    checkpoint  which transactions were committed, and members of shared locks
    control     control  checkpoint  from where on the log is replayed

With `opendatasync` each write of the log is durable when it returns, so there is no call to leave out. All but the
first are made in the background. A run of 40 transactions begins no new file of the log, so the syncs of a new file
have no name. Measured with PostgreSQL 15 from a log of its calls, and commits with 17 under supervision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.postgresql.cluster import FOLDER
from rig.engines.postgresql.options import SETTING, syncs_commits
from rig.engines.syncs import Call, CallName, RoleNamer, SyncKind, SyncPhase, by_name

KINDS = by_name(
    SyncKind("wal-commit", "wal", SyncPhase.COMMIT),
    SyncKind("wal-flush", "wal", SyncPhase.CHECKPOINT),
    SyncKind("table", "table", SyncPhase.CHECKPOINT),
    SyncKind("state", "state", SyncPhase.CHECKPOINT),
    SyncKind("control", "control", SyncPhase.CHECKPOINT),
)
SAMPLE_TUNING: Mapping[str, str] = {}
_ROLES = (
    (re.compile(r"pg_wal/[0-9A-F]{24}"), "wal"),
    (re.compile(r"pg_wal/xlogtemp\.\d+"), "new-wal"),
    (re.compile(r"pg_wal"), "wal-folder"),
    (re.compile(r"global/pg_control"), "control"),
    (re.compile(r"(?:base/\d+|global)/\d+(?:_\w+)?(?:\.\d+)?"), "table"),
    (re.compile(r"pg_(?:xact|multixact/\w+|subtrans|commit_ts)/[0-9A-F]+"), "state"),
    (re.compile(r"(?:pg_|base/|global/).*|postmaster\.\w+|PG_VERSION"), "other"),
)
_KIND_OF = {kind.role: kind.name for kind in KINDS.values() if kind.role != "wal"}
_BACKGROUND = ("table", "state", "control")


class Namer(RoleNamer):
    """Names the syncs of all processes of a server by the role of the file; for the log it matters who waits."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(_KIND_OF | {"wal": "wal-commit" if syncs_commits(settings) else "wal-flush"})


def role(path: str, directory: str) -> str:
    """Return the role of a file for the cluster in `directory`; empty for an unrelated file."""
    name = path.removesuffix(" (deleted)").removeprefix(f"{directory.rstrip('/')}/{FOLDER}/")
    return next((role for pattern, role in _ROLES if pattern.fullmatch(name)), "")


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: a sync of the log; all else happens in the background."""
    return call.role if call.name is CallName.SYNC and call.role == "wal" else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    if syncs_commits(settings):
        return "wal-commit", "wal-commit wal-commit"
    return ("", "wal-flush") if settings[SETTING] == "async" else ("",)


def background(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of sync that these settings make in the background."""
    return () if settings[SETTING] == "nofsync" else _BACKGROUND
