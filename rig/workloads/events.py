"""What happens to a database between two transactions, in words that fit any engine. No event changes its content.

An engine says in its spec (`Spec.events`) which of these it can do, and in which variants, in its own words; the others
are skipped, and the recording says which. Which variant an event takes is a draw, so a workload knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rig.workloads.operations import Operation


class EventKind(StrEnum):
    """The kinds of event. Idling, opening again and another process need no help from the engine."""

    # Nothing happens for longer than a file system waits before it commits by itself.
    IDLE = "idle"
    # The database is closed by every connection and opened again.
    REOPEN = "reopen"
    # The database is closed; the next transaction is committed by another process, which ends without closing it.
    OTHER_PROCESS = "other-process"
    # The next transaction is committed over a second connection, which stays open and takes turns with the first.
    OTHER_CONNECTION = "other-connection"
    # A reader takes a snapshot, and lets go of it.
    HOLD = "hold-snapshot"
    DROP = "drop-snapshot"
    # A log is moved into the database; every other time over a connection that is opened for this.
    CHECKPOINT = "checkpoint"
    # Free space is given back.
    VACUUM = "vacuum"
    # The way in which the engine makes its transactions atomic is changed, and changed back.
    CHANGE = "change"
    # Another program syncs all file systems while the next transaction is under way. For engines that write before the
    # commit.
    SYNC = "foreign-sync"
    # A transaction is rolled back.
    ROLLBACK = "rollback"


# The database must not be open anywhere else.
ALONE = frozenset({EventKind.REOPEN, EventKind.OTHER_PROCESS, EventKind.CHANGE})


@dataclass(frozen=True)
class Event:
    """One event; `draw` chooses among the variants of the engine."""

    kind: EventKind
    draw: int = 0
    # For a rollback: the transaction that ends with it.
    operations: tuple[Operation, ...] = ()
