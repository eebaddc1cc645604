"""The connections of a workload: who commits the next transaction, and what happens between two.

Every event is between the marks `event-K-T` and `done-K-T`, where K counts events from 1. Only one process and one
connection work at a time, so on one vCPU under icount every run is the same. Events that the engine's spec does not
list, or that have no meaning under the settings, are skipped and counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rig.engines import Database, EventfulDatabase, ObservantDatabase, load
from rig.filesystems import Served
from rig.guest.site import Site
from rig.guest.watch.forks import Fork
from rig.workloads import situations
from rig.workloads.events import ALONE, Event, EventKind
from rig.workloads.operations import Operation

# Longer than the 5 s after which a file system commits by itself.
IDLE_MS = 6000


class Connections:
    """The open database, further connections to it, and which of them commits next."""

    def __init__(
        self,
        site: Site,
        mark: Callable[[str], None],
        idle: Callable[[float], None],
    ) -> None:
        self._site = site
        self._spec = load(site.orders.engine_module).spec
        self._mark = mark
        self._idle = idle
        self._first: Database | None = None
        self._second: Database | None = None
        # While the second is open, the two take turns.
        self._is_seconds_turn = False
        # The connection that holds a snapshot.
        self._reader: Database | None = None
        self._next: EventKind | None = None
        # Whether another program syncs in the middle of the next transaction.
        self._is_synced = False
        # The situations of the last transaction.
        self._last: tuple[str, ...] = ()
        self._count = self._transaction_count = 0
        # Situations that came about: the kind of mark that ends one, the mark's number, and the situation.
        self.reached: list[tuple[str, int, str]] = []
        self.skipped: Counter[str] = Counter()

    def create(self) -> None:
        """Make the database; return after the engine has acknowledged that. This may count as transaction 1."""
        work = self._site.work
        self._transaction_count += work.creates
        self._last = (situations.CREATED,)
        self._first = self._open()
        self._first.create(work.first_tables, work.initial)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out a transaction as the last event asks."""
        kind, self._next = self._next, None
        self._transaction_count += 1
        self._last = situations.of_transaction(operations)
        operations = self._with_sync(operations)
        if kind is EventKind.OTHER_PROCESS:
            ending = Fork(partial(self._commit_apart, operations)).wait()
            ending.require("the other process")
        elif kind is EventKind.OTHER_CONNECTION or (self._second and self._is_seconds_turn):
            self._second = self._second or self._open()
            self._second.commit(operations)
            self._is_seconds_turn = False
        else:
            self.database.commit(operations)
            self._is_seconds_turn = True

    def note_acknowledgement(self) -> None:
        """Note what the transaction did, once its acknowledgement is marked; reopen if another process committed it."""
        self._note("ack", self._transaction_count, [*self._last, *self._situations()])
        if self._first is None:
            with self._mark_event():
                self._first = self._open()
                self._note("done", self._count, [situations.AFTER_ANOTHER])

    def happen(self, event: Event) -> None:
        """Carry out an event between two marks."""
        variants = self._spec.events.get(event.kind, ())
        variant = variants[event.draw % len(variants)] if variants else ""
        with self._mark_event():
            if self._carry_out(event, variant, is_known=bool(variants)):
                self._note("done", self._count, [situations.of_event(event.kind, variant)])
            else:
                self.skipped[situations.of_event(event.kind, variant)] += 1
        self._note("done", self._count, self._situations())

    def close(self) -> None:
        """Close every connection, as a careful program would."""
        self._drop()
        for database in (self._second, self._first):
            if database:
                database.close()
        self._first = self._second = None

    def _open(self) -> Database:
        database = self._site.open_database()
        # Asking a network file system about a file makes it send its data, as a sync of the engine would.
        if isinstance(database, ObservantDatabase) and not isinstance(self._site.filesystem, Served):
            database.observe()
        return database

    def _note(self, ending: str, number: int, words: Iterable[str]) -> None:
        self.reached += [(ending, number, word) for word in words]

    def _situations(self) -> list[str]:
        """Return what the engine has seen since the last call, over any connection."""
        opened = (self._first, self._second)
        return [word for database in opened if isinstance(database, ObservantDatabase) for word in database.seen()]

    @contextmanager
    def _mark_event(self) -> Iterator[None]:
        self._count += 1
        self._mark(f"event-{self._count}")
        yield
        self._mark(f"done-{self._count}")

    def _carry_out(self, event: Event, variant: str, *, is_known: bool) -> bool:
        kind = event.kind
        if kind in ALONE:
            self._drop()
        if kind is EventKind.IDLE:
            self._idle(IDLE_MS)
        elif kind is EventKind.SYNC and is_known:
            self._is_synced = True
        elif kind is EventKind.ROLLBACK and event.operations:
            self.database.commit(self._with_sync(event.operations))
        elif kind is EventKind.REOPEN:
            self.close()
            self._first = self._open()
        elif kind is EventKind.OTHER_PROCESS and self._spec.survives_fork:
            self.close()
            self._next = kind
        elif kind is EventKind.OTHER_CONNECTION and is_known:
            self._next = kind
        else:
            return is_known and self._let_happen(kind, variant)
        return True

    def _with_sync(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Return a transaction in whose middle another program syncs, if the last event asks for it."""
        is_synced, self._is_synced = self._is_synced, False
        return _Synced(operations) if is_synced else operations

    def _let_happen(self, kind: EventKind, variant: str) -> bool:
        """Let the engine carry out an event that its spec lists."""
        if kind is EventKind.HOLD:
            return self._hold(variant)
        if kind is EventKind.DROP:
            return self._drop(variant)
        if kind is EventKind.CHECKPOINT and self._count % 2:
            return self._maintain(kind, variant)
        if kind in ALONE and self._second:
            self._second.close()
            self._second = None
        return _eventful(self.database).happen(kind, variant)

    def _maintain(self, kind: EventKind, variant: str) -> bool:
        """Carry out an event as a maintenance job does: over a connection opened for it that never writes."""
        database = self._open()
        is_done = _eventful(database).happen(kind, variant)
        if isinstance(database, ObservantDatabase):
            self._note("done", self._count, database.seen())
        database.close()
        return is_done

    def _hold(self, variant: str) -> bool:
        self._drop()
        reader = self._site.open_database()
        if not _eventful(reader).happen(EventKind.HOLD, variant):
            reader.close()
            return False
        self._reader = reader
        return True

    def _drop(self, variant: str = "") -> bool:
        reader, self._reader = self._reader, None
        if reader:
            _eventful(reader).happen(EventKind.DROP, variant)
            reader.close()
        return reader is not None

    def _commit_apart(self, operations: Sequence[Operation], send: Callable[[Any], None]) -> None:  # noqa: ARG002
        """Commit in another process that ends without closing; the next process finds what it left open."""
        self._site.open_database().commit(operations)

    @property
    def database(self) -> Database:
        """Return the connection that made the database, or opened it last."""
        assert self._first, "another process is to commit next"
        return self._first


class _Synced(tuple[Operation, ...]):
    """A transaction before whose last operation another program syncs all file systems; an engine need not know.

    A part of it is one too: what a transaction does before its rollback.
    """

    __slots__ = ()

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        return _Synced(part) if isinstance(place, slice) else part

    def __iter__(self) -> Iterator[Operation]:
        for place, operation in enumerate(super().__iter__(), 1):
            if place == len(self):
                _sync_apart()
            yield operation


def _sync_apart() -> None:
    child = os.fork()
    if child == 0:
        os.sync()
        os._exit(0)
    os.waitpid(child, 0)


def _eventful(database: Database) -> EventfulDatabase:
    if not isinstance(database, EventfulDatabase):
        raise TypeError(f"{type(database).__name__} cannot do what its spec lists as events; see docs/extend/engine.md")
    return database
