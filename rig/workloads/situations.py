"""Situations that a workload brings about, whatever the engine; an engine adds its own (`Spec.situations`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.workloads.events import EventKind
from rig.workloads.operations import ROW_VERBS, Operation, Verb

CREATED = "the database was made"
ONE_ROW = "a transaction of one row"
SCHEMA = "tables or indexes changed beside rows"
KEPT, UNDONE = "a savepoint was released", "a savepoint was rolled back to"
# What transactions may do, and what may happen between them without the help of the engine.
OF_TRANSACTIONS = (CREATED, ONE_ROW, SCHEMA, KEPT, UNDONE)
_OWN_EVENTS = (EventKind.IDLE, EventKind.REOPEN, EventKind.OTHER_PROCESS, EventKind.ROLLBACK)


# With several writers at a time.
BUSY = "a writer found another at work and tried again"
OTHER_WRITER = "the next commit was that of another process"
OTHER_THREAD = "the next commit was that of another thread"
EARLY = "a commit began before the last one was acknowledged"
CHECKPOINTED = "a commit went on while another connection checkpointed"
SYNCED = "a commit was made and acknowledged while the sync of a checkpoint was under way"
WAITED = "a writer waited while another connection checkpointed"
READ = "a commit went on while another connection opened and read"
OF_WRITERS = (BUSY, OTHER_WRITER, OTHER_THREAD, EARLY, CHECKPOINTED, SYNCED, WAITED, READ)


# Another process has committed and ended without closing the database.
AFTER_ANOTHER = f"{EventKind.REOPEN} after another process"


def of_transaction(operations: Sequence[Operation]) -> tuple[str, ...]:
    """Return the situations that a transaction is."""
    verbs = {operation.verb for operation in operations}
    holds = {
        ONE_ROW: len(operations) == 1 and verbs <= ROW_VERBS,
        SCHEMA: any(operation.made for operation in operations) and bool(verbs & ROW_VERBS),
        KEPT: Verb.RELEASE in verbs,
        UNDONE: Verb.ROLL_BACK_TO in verbs,
    }
    return tuple(word for word, is_so in holds.items() if is_so)


def of_event(kind: str, variant: str = "") -> str:
    """Return an event as a situation, with its variant in the engine's own words."""
    return f"{kind} {variant}" if variant else kind


def of_events(known: Mapping[EventKind, Sequence[str]]) -> tuple[str, ...]:
    """Return all events of an engine that knows these variants, as situations."""
    own = (of_event(kind) for kind in _OWN_EVENTS)
    engines = (of_event(kind, variant) for kind, variants in known.items() for variant in variants)
    return (*own, AFTER_ANOTHER, *engines)
