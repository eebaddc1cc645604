"""The calls that make a transaction of MariaDB durable.

    kind           role    phase       what it makes durable
    redo-commit    redo    commit      InnoDB's log: the commit, or with a binary log what has been prepared
    binlog-commit  binlog  commit      the binary log; only with binlog1
    redo-flush     redo    checkpoint  InnoDB's log, once a second; flush0 and flush2 have no other sync of it
    system         system  checkpoint  the doublewrite buffer before pages are written in place; undo logs
    table          table   checkpoint  tables and indexes, before the log of what they hold is given up

With a binary log a commit is prepared in InnoDB, written to the binary log, then committed in InnoDB. The record of
the last step is synced only with flush3. With odsync the log and the tables need no call to be durable, so there is no
call to leave out. All syncs but the commits are made in the background. Measured with MariaDB 11.8.9 from a log of its
calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.mariadb.instance import FOLDER
from rig.engines.mariadb.options import SETTING
from rig.engines.syncs import Call, CallName, RoleNamer, SyncKind, SyncPhase, by_name

KINDS = by_name(
    SyncKind("redo-commit", "redo", SyncPhase.COMMIT),
    SyncKind("binlog-commit", "binlog", SyncPhase.COMMIT),
    SyncKind("redo-flush", "redo", SyncPhase.CHECKPOINT),
    SyncKind("system", "system", SyncPhase.CHECKPOINT),
    SyncKind("table", "table", SyncPhase.CHECKPOINT),
)
SAMPLE_TUNING: Mapping[str, str] = {}
_ROLES = (
    (re.compile(r"ib_logfile0"), "redo"),
    (re.compile(r"ib_logfile101"), "new-redo"),
    (re.compile(r"ibdata1"), "system"),
    (re.compile(r"binlog\.\d+"), "binlog"),
    (re.compile(r"binlog\.(?:index|state)"), "binlog-names"),
    (re.compile(r"aria_log.*"), "aria"),
    (re.compile(r"(?!mysql/)\w+/.+\.ibd"), "table"),
    (re.compile(r"(?:\w+/.*|ddl_recovery.*|tc\.log|multi-master\.info)"), "other"),
)
_LAZY = frozenset({"flush0", "flush2"})
# If a commit has more than one sync of the log, one was made in the background meanwhile.
_SEQUENCES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("default", "fsync", "nodoublewrite", "binlog0"), ("redo-commit", "redo-commit redo-commit")),
    **dict.fromkeys(_LAZY, ("", "redo-flush")),
    "flush3": ("redo-commit redo-commit", "redo-commit redo-commit redo-commit"),
    "binlog1": ("redo-commit binlog-commit", "redo-commit redo-commit binlog-commit"),
    "odsync": ("",),
}


class Namer(RoleNamer):
    """Names the syncs of all threads of a server by the role of the file; for the log it matters who waits."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        of_redo = "redo-flush" if settings[SETTING] in _LAZY else "redo-commit"
        super().__init__({kind.role: kind.name for kind in KINDS.values()} | {"redo": of_redo})


def role(path: str, directory: str) -> str:
    """Return the role of a file for the data directory in `directory`; empty for an unrelated file."""
    name = path.removesuffix(" (deleted)").removeprefix(f"{directory.rstrip('/')}/{FOLDER}/")
    return next((role for pattern, role in _ROLES if pattern.fullmatch(name)), "")


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: a sync of a log; all else happens in the background."""
    return call.role if call.name is CallName.SYNC and call.role in {"redo", "binlog"} else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`."""
    return _SEQUENCES[settings[SETTING]]


def background(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of sync that these settings make in the background."""
    return ("system",) if settings[SETTING] == "odsync" else ("system", "table")
