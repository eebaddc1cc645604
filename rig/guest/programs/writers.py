"""Several writers at a time: processes with threads, each with a connection of its own, compete for the write lock.

All wake at the same moments. Each asks for the lock until it has it, without waiting inside the engine (busy retries),
then carries out the next transaction. Commits are acknowledged in the order in which they are made: a writer that has
the lock waits with its commit until the one before is acknowledged. So requests for the lock, changes of pages and
a checkpoint that belongs to the previous commit may overlap; two commits never do.
"""

from __future__ import annotations

import mmap
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from rig.engines import CrowdedDatabase
from rig.guest.site import Site
from rig.guest.watch.forks import Fork, Send
from rig.workloads import situations

# Pauses between two attempts to get the lock, and while a writer awaits another's acknowledgement.
_RETRY_MS, _TURN_MS = (1.0, 4.0), 0.2
_SHARED = struct.Struct("qq")


@dataclass(frozen=True)
class Commit:
    """One commit: its number, its process and thread, and how often that thread found another writer at work."""

    number: int
    process: int
    thread: int
    busy_count: int


class _Shared:
    """What all writers see: the number of the last acknowledged transaction, and whether a writer has failed."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def acked(self) -> int:
        return int(_SHARED.unpack_from(self._memory)[0])

    @property
    def has_failed(self) -> bool:
        return bool(_SHARED.unpack_from(self._memory)[1])

    def acknowledge(self, number: int) -> None:
        _SHARED.pack_into(self._memory, 0, number, int(self.has_failed))

    def fail(self) -> None:
        _SHARED.pack_into(self._memory, 0, self.acked, 1)


def run(site: Site, mark: Callable[[str], None]) -> list[Commit]:
    """Carry out all transactions of a site by its writers; return the commits, in order."""
    # In a fork of its own, because process 1 would kill and reap all other writers when one ends.
    ending = Fork(partial(_all, site, mark, _Shared())).wait()
    ending.require("the writers")
    return sorted((Commit(**one) for one in ending.messages), key=lambda one: one.number)


def reached(commits: list[Commit]) -> Iterator[tuple[str, int, str]]:
    """Yield the situations that came about: the kind of mark that ends one, the mark's number, and the situation."""
    last: tuple[int, int] | None = None
    for one in commits:
        if one.busy_count:
            yield "ack", one.number, situations.BUSY
        if last and last[0] != one.process:
            yield "ack", one.number, situations.OTHER_WRITER
        elif last and last[1] != one.thread:
            yield "ack", one.number, situations.OTHER_THREAD
        last = one.process, one.thread


def _all(site: Site, mark: Callable[[str], None], shared: _Shared, send: Send) -> None:
    process_count, _ = site.work.writers
    begin_ns = time.monotonic_ns()
    forks = [Fork(partial(_process, site, mark, shared, begin_ns, rank)) for rank in range(process_count)]
    for ending in [fork.wait() for fork in forks]:
        ending.require("a writer")
        for message in ending.messages:
            send(message)


def _process(  # noqa: PLR0917 - all types differ; mypy catches a swap
    site: Site, mark: Callable[[str], None], shared: _Shared, begin_ns: int, rank: int, send: Send
) -> None:
    commits, errors = list[Commit](), list[BaseException]()

    def write(thread: int) -> None:
        try:
            commits.extend(_commits(site, mark, shared, begin_ns, (rank, thread)))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread, where it is seen
            errors.append(error)
            shared.fail()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(site.work.writers[1])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for error in errors:
        raise error
    for one in commits:
        send(asdict(one))


def _commits(
    site: Site, mark: Callable[[str], None], shared: _Shared, begin_ns: int, place: tuple[int, int]
) -> Iterator[Commit]:
    """Commit one transaction after each moment, until no transaction is left."""
    work, orders = site.work, site.orders
    process_count, thread_count = work.writers
    own = random.Random(f"writer {orders.seed} {place}")
    # All writers draw the same pauses, so they wake together; the transaction rate is the same as with one writer.
    common = random.Random(f"think {orders.seed}")
    database = site.open_database()
    if not isinstance(database, CrowdedDatabase):
        raise TypeError(f"{type(database).__name__} cannot be shared by several writers; see docs/extend/engine.md")
    moment_ns = begin_ns
    while True:
        moment_ns += int(common.uniform(0, 2 * orders.think_ms) * 1e6) * process_count * thread_count
        time.sleep(max(0, moment_ns - time.monotonic_ns()) / 1e9)
        busy_count = 0
        while (last := database.claim(*work.last)) is None:
            busy_count += 1
            _pause(own.uniform(*_RETRY_MS), shared)
        number = last + 1
        if number > orders.transaction_count:
            database.rollback()
            database.close()
            return
        database.carry_out(work.transaction(number))
        while shared.acked < last:
            _pause(_TURN_MS, shared)
        mark(f"begin-{number}")
        while not database.finish():
            busy_count += 1
            _pause(own.uniform(*_RETRY_MS), shared)
        mark(f"ack-{number}")
        shared.acknowledge(number)
        yield Commit(number, *place, busy_count)


def _pause(pause_ms: float, shared: _Shared) -> None:
    if shared.has_failed:
        raise RuntimeError("another writer has failed")
    time.sleep(pause_ms / 1e3)
