"""The events of a workload as SQLite carries them out, in the words of its pragmas.

In a journal mode other than WAL there is nothing to checkpoint, and a reader would keep a writer from committing.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.engines.sqlite.library import Connection
from rig.engines.sqlite.situations import FileWatch
from rig.workloads.events import EventKind

CHECKPOINTS = ("passive", "full", "restart", "truncate")
VACUUMS = ("VACUUM", "incremental_vacuum", "auto_vacuum=full", "auto_vacuum=incremental")
# The journal modes to change to; a mode that keeps nothing on disk would break the promise of the others.
MODES = ("wal", "delete", "truncate", "persist")
EVENTS: Mapping[EventKind, tuple[str, ...]] = {
    EventKind.SYNC: ("",),
    EventKind.OTHER_CONNECTION: ("",),
    EventKind.HOLD: ("",),
    EventKind.DROP: ("",),
    EventKind.CHECKPOINT: CHECKPOINTS,
    EventKind.VACUUM: VACUUMS,
    EventKind.CHANGE: MODES,
}


def happen(connection: Connection, journal_mode: str, kind: EventKind, variant: str, watch: FileWatch) -> bool:
    """Carry out an event over a connection; return False if it has no meaning in this journal mode."""
    if kind is EventKind.VACUUM:
        connection.execute(variant if variant == VACUUMS[0] else f"PRAGMA {variant}").fetchall()
    elif kind is EventKind.CHANGE:
        return _change_and_back(connection, journal_mode, variant)
    elif journal_mode != "wal":
        return False
    elif kind is EventKind.CHECKPOINT:
        ((_, frame_count, moved_count),) = connection.execute(f"PRAGMA wal_checkpoint({variant})").fetchall()
        watch.note_checkpoint(frame_count, moved_count)
    elif kind is EventKind.HOLD:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    elif kind is EventKind.DROP:
        connection.execute("COMMIT")
    else:
        return False
    return True


def _change_and_back(connection: Connection, own: str, other: str) -> bool:
    """Change to another journal mode, commit a transaction that changes no row, and change back."""
    if own not in MODES:
        return False
    if other == own:
        other = MODES[1] if own == MODES[0] else MODES[0]
    for mode in (other, own):
        has = connection.execute(f"PRAGMA journal_mode={mode}").fetchall()[0][0]
        if has != mode:
            raise RuntimeError(f"journal_mode={mode} was asked for between two transactions, {has} was read back")
        if mode == other:
            version = connection.execute("PRAGMA user_version").fetchall()[0][0]
            connection.execute(f"PRAGMA user_version={version + 1}").fetchall()
    return True
