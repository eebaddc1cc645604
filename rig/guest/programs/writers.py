"""Several connections at a time: writers compete for the write lock, one connection checkpoints, and one reads.

Writers are processes with threads, each with a connection of its own. All wake at the same moments. Each asks for the
lock until it has it, without waiting inside the engine (busy retries), then carries out the next transaction. It
commits at once: the commit before may not be acknowledged yet, because its checkpoint still runs. Marks may therefore
overlap, as in `begin-5 begin-6 ack-6 ack-5`. The engine has committed them in the order of their numbers, so an
acknowledgement covers all lower numbers.

Two more processes wake at the same moments. One checkpoints over a connection of its own, if the engine knows
checkpoints, so a commit meets a checkpoint that runs, or has to wait for one. Some of its syncs are held until another
connection has committed: what is not durable before a checkpoint ends must not be needed by that commit. The other
process opens a connection, reads everything and closes it.
"""

from __future__ import annotations

import mmap
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import partial

from rig.engines import CrowdedDatabase, Database, EventfulDatabase, load
from rig.guest.programs import marks
from rig.guest.site import Site
from rig.guest.watch.forks import Fork, Send
from rig.guest.watch.heldsyncs import hold_syncs
from rig.workloads import situations
from rig.workloads.events import EventKind

# Pauses between two attempts to get the lock. A writer that has tried this often probably waits for a held sync, which
# may take seconds. Each attempt costs time, so from then on its pauses are this many times longer.
_RETRY_MS, _PATIENT, _LONGER = (0.2, 1.0), 100, 30
# The longest that a bystander sleeps on after a moment: all writers have committed by then. Only some of these moments
# have a checkpoint, so that commits make their own, too.
_LATE_MS, _CHECKPOINT_EVERY = 30.0, 2
# Checkpoints in a row, and the longest pause between two: the commits of one moment meet several.
_IN_A_ROW, _BETWEEN_MS = (1, 6), 5.0
# The first way to checkpoint, which waits for nobody and so runs while others commit, is this much more likely.
_GENTLE = 3
# The longest that a sync of a checkpoint is held: one that lets others commit meanwhile, and any other one. The next
# moment may be seconds away, which cost nothing while all sleep.
_HELD_MS, _HELD_SHORTLY_MS, _HELD_LOOK_MS = 20_000.0, 30.0, 5.0
# Which sync of a checkpoint is held, of two; 0 for none.
_HELD_OF = range(3)
_WORD = struct.Struct("q")


@dataclass(frozen=True)
class Commit:
    """One commit: its number, its process and thread, how often that thread found another writer at work, and more."""

    number: int
    process: int
    thread: int
    busy_count: int
    # Situations that it met besides: what other connections did meanwhile.
    met: tuple[str, ...] = ()


class _Slot(IntEnum):
    """Where in the shared memory a number is; each has one process that writes it."""

    HAS_FAILED = 0
    IS_OVER = 1
    # How many checkpoints, and how many readings, have begun and ended.
    CHECKPOINTS_BEGUN = 2
    CHECKPOINTS_ENDED = 3
    READINGS_BEGUN = 4
    READINGS_ENDED = 5
    # Whether a sync of a checkpoint is held.
    IS_HELD = 6
    # For each writer, how many beginnings and acknowledgements it has marked: an odd number while a transaction has
    # begun and is not acknowledged.
    WRITERS = 7


class _Shared:
    """What all see: what each is doing, whether one has failed, and whether all transactions are over."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def __getitem__(self, place: int) -> int:
        return int(_WORD.unpack_from(self._memory, _WORD.size * place)[0])

    def __setitem__(self, place: int, number: int) -> None:
        _WORD.pack_into(self._memory, _WORD.size * place, number)

    def pause(self, pause_ms: float) -> None:
        """Sleep; raise RuntimeError if another has failed."""
        if self[_Slot.HAS_FAILED]:
            raise RuntimeError("another writer has failed")
        time.sleep(pause_ms / 1e3)


class _Span:
    """A span of time, and whether anything else was under way during it."""

    def __init__(self, shared: _Shared, begun: int, ended: int) -> None:
        self._shared = shared
        self._begun = begun
        self._ended_before = shared[ended]

    @property
    def is_shared(self) -> bool:
        """Whether anything of the kind has been under way since the beginning."""
        return self._shared[self._begun] > self._ended_before


class _Hold:
    """Holds one sync of a checkpoint until soon after another connection has acknowledged a commit, or for a time."""

    def __init__(self, site: Site, shared: _Shared) -> None:
        self._writers = _writers(site)
        self._shared = shared
        self._chance = random.Random(f"held {site.orders.seed}")
        # How many syncs are left up to the one that is held, and the longest that it is.
        self._left, self._longest_ms = 0, 0.0

    def begin(self, left: int, longest_ms: float) -> None:
        """Begin a checkpoint whose sync number `left` is held; none if that is 0."""
        self._left, self._longest_ms = left, longest_ms

    def __call__(self) -> None:
        """Return when the next sync may begin."""
        self._left -= 1
        if self._left:
            return
        shared, begin_s, before = self._shared, time.monotonic(), self._acknowledged_count
        shared[_Slot.IS_HELD] = 1
        while (
            self._acknowledged_count == before
            and not (shared[_Slot.IS_OVER] or shared[_Slot.HAS_FAILED])
            and time.monotonic() < begin_s + self._longest_ms / 1e3
        ):
            time.sleep(_HELD_LOOK_MS / 1e3)
        if self._acknowledged_count > before:
            # Others may want to commit right now, too; the sync begins before, amid or after theirs.
            time.sleep(self._chance.uniform(0, _LATE_MS) / 1e3)
        shared[_Slot.IS_HELD] = 0

    @property
    def _acknowledged_count(self) -> int:
        return sum(self._shared[writer] // 2 for writer in self._writers)


def _writers(site: Site) -> set[int]:
    """Return the places of all writers in the shared memory."""
    process_count, thread_count = site.work.writers
    return {_Slot.WRITERS + rank for rank in range(process_count * thread_count)}


def run(site: Site, mark: Callable[[str], None]) -> list[Commit]:
    """Carry out all transactions of a site by its writers; return the commits, in order."""
    # In a fork of its own, because process 1 would kill and reap all other writers when one ends.
    with marks.among_processes(mark) as mark_alone:
        ending = Fork(partial(_all, site, mark_alone, _Shared())).wait()
    ending.require("the writers")
    commits = (Commit(**{**commit, "met": tuple(commit["met"])}) for commit in ending.messages)
    return sorted(commits, key=lambda commit: commit.number)


def reached_situations(commits: list[Commit]) -> Iterator[tuple[str, int, str]]:
    """Yield the situations that came about: the kind of mark that ends one, the mark's number, and the situation."""
    last: tuple[int, int] | None = None
    for commit in commits:
        if commit.busy_count:
            yield "ack", commit.number, situations.BUSY
        if last and last[0] != commit.process:
            yield "ack", commit.number, situations.OTHER_WRITER
        elif last and last[1] != commit.thread:
            yield "ack", commit.number, situations.OTHER_THREAD
        for word in commit.met:
            yield "ack", commit.number, word
        last = commit.process, commit.thread


def _all(site: Site, mark: Callable[[str], None], shared: _Shared, send: Send) -> None:
    process_count, _ = site.work.writers
    begin_ns = time.monotonic_ns()
    forks = [Fork(partial(_process, site, mark, shared, begin_ns, rank)) for rank in range(process_count)]
    others = [Fork(partial(body, site, shared, begin_ns)) for body in (_checkpoints, _readings)]
    for ending in [fork.wait() for fork in forks]:
        ending.require("a writer")
        for message in ending.messages:
            send(message)
    shared[_Slot.IS_OVER] = 1
    for ending in [fork.wait() for fork in others]:
        ending.require("a connection that does not write")


def _process(  # noqa: PLR0917 - all types differ; mypy catches a swap
    site: Site, mark: Callable[[str], None], shared: _Shared, begin_ns: int, rank: int, send: Send
) -> None:
    commits, errors = list[Commit](), list[BaseException]()

    def write(thread: int) -> None:
        try:
            commits.extend(_commits(site, mark, shared, begin_ns, (rank, thread)))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread, where it is seen
            errors.append(error)
            shared[_Slot.HAS_FAILED] = 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(site.work.writers[1])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for error in errors:
        raise error
    for commit in commits:
        send(asdict(commit))


def _commits(
    site: Site, mark: Callable[[str], None], shared: _Shared, begin_ns: int, place: tuple[int, int]
) -> Iterator[Commit]:
    """Commit one transaction after each moment, until no transaction is left."""
    work, orders = site.work, site.orders
    own = random.Random(f"writer {orders.seed} {place}")
    # Where this writer, and the others, note that a transaction is not acknowledged yet.
    here = _Slot.WRITERS + place[0] * work.writers[1] + place[1]
    elsewhere = _writers(site) - {here}
    database = site.open_database()
    if not isinstance(database, CrowdedDatabase):
        raise TypeError(f"{type(database).__name__} cannot be shared by several writers; see docs/extend/engine.md")
    for _ in _moments(site, begin_ns):
        waiting = _Span(shared, _Slot.CHECKPOINTS_BEGUN, _Slot.CHECKPOINTS_ENDED)
        busy_count = 0
        while (last := database.claim(*work.last)) is None:
            busy_count += 1
            shared.pause(_until_retry_ms(own, busy_count))
        has_waited = bool(busy_count) and waiting.is_shared
        number = last + 1
        if number > orders.transaction_count:
            database.rollback()
            database.close()
            return
        database.carry_out(work.transaction(number))
        is_early = any(shared[other] % 2 for other in elsewhere)
        checkpoints = _Span(shared, _Slot.CHECKPOINTS_BEGUN, _Slot.CHECKPOINTS_ENDED)
        readings = _Span(shared, _Slot.READINGS_BEGUN, _Slot.READINGS_ENDED)
        was_held = shared[_Slot.IS_HELD]
        shared[here] += 1
        mark(f"begin-{number}")
        while not database.finish():
            busy_count += 1
            shared.pause(_until_retry_ms(own, busy_count))
        mark(f"ack-{number}")
        is_during_sync = bool(was_held and shared[_Slot.IS_HELD])
        shared[here] += 1
        met = {
            situations.WAITED: has_waited, situations.CHECKPOINTED: checkpoints.is_shared,
            situations.READ: readings.is_shared, situations.EARLY: is_early, situations.SYNCED: is_during_sync,
        }  # fmt: skip
        yield Commit(number, *place, busy_count, tuple(word for word, is_so in met.items() if is_so))


def _until_retry_ms(own: random.Random, tries: int) -> float:
    return own.uniform(*_RETRY_MS) * (_LONGER if tries > _PATIENT else 1)


def _moments(site: Site, begin_ns: int) -> Iterator[None]:
    """Sleep until the next moment, again and again: all draw the same pauses, so they wake together.

    There are as many transactions in a time as with one writer.
    """
    process_count, thread_count = site.work.writers
    common = random.Random(f"think {site.orders.seed}")
    moment_ns = begin_ns
    while True:
        moment_ns += int(common.uniform(0, 2 * site.orders.think_ms) * 1e6) * process_count * thread_count
        time.sleep(max(0, moment_ns - time.monotonic_ns()) / 1e9)
        yield


def _checkpoints(site: Site, shared: _Shared, begin_ns: int, send: Send) -> None:  # noqa: ARG001 - as every fork
    """Checkpoint soon after a moment, a few times in a row, over one connection, each time in a way of the engine's."""
    variants = load(site.orders.engine_module).spec.events.get(EventKind.CHECKPOINT, ())
    database = site.open_database()
    own = random.Random(f"checkpoints {site.orders.seed}")
    if variants and isinstance(database, EventfulDatabase):
        hold = _Hold(site, shared)
        hold_syncs(hold)

        def checkpoint() -> None:
            for _ in range(own.randint(*_IN_A_ROW)):
                variant = own.choice((*variants[:1] * _GENTLE, *variants))
                hold.begin(own.choice(_HELD_OF), _HELD_MS if variant == variants[0] else _HELD_SHORTLY_MS)
                database.happen(EventKind.CHECKPOINT, variant)
                time.sleep(own.uniform(0, _BETWEEN_MS) / 1e3)
            # By now all have committed, so this checkpoint is complete: the next commit comes within one of its syncs.
            time.sleep(_LATE_MS / 1e3)
            hold.begin(own.choice(_HELD_OF[1:]), _HELD_MS)
            database.happen(EventKind.CHECKPOINT, variants[0])
            # The one after that finds what was committed within that sync, and nothing newer, if it comes at once.
            hold.begin(0, 0)
            database.happen(EventKind.CHECKPOINT, variants[0])

        _meanwhile(site, shared, begin_ns, own, checkpoint, _Slot.CHECKPOINTS_BEGUN, _CHECKPOINT_EVERY)
    database.close()


def _readings(site: Site, shared: _Shared, begin_ns: int, send: Send) -> None:  # noqa: ARG001 - as every fork
    """Open the database soon after each moment, read all of it, and close it."""

    def read() -> None:
        database: Database = site.open_database()
        database.content(site.work.tables)
        database.close()

    _meanwhile(site, shared, begin_ns, random.Random(f"readings {site.orders.seed}"), read, _Slot.READINGS_BEGUN)


def _meanwhile(  # noqa: PLR0917 - all types differ; mypy catches a swap
    site: Site,
    shared: _Shared,
    begin_ns: int,
    own: random.Random,
    action: Callable[[], None],
    begun: int,
    every: int = 1,
) -> None:
    """Do something soon after one in `every` moments until all transactions are over; count beginnings and ends."""
    for _ in _moments(site, begin_ns):
        time.sleep(own.uniform(0, _LATE_MS) / 1e3)
        if shared[_Slot.IS_OVER] or shared[_Slot.HAS_FAILED]:
            return
        if own.randrange(every):
            continue
        shared[begun] += 1
        action()
        shared[begun + 1] += 1
