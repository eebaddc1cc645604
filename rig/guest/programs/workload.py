"""The program whose data is at stake: it runs transactions and marks each acknowledgement in the write log.

It is a process of its own, so that it can be killed: a fork, or a program with a preloaded shim, which reads its orders
as JSON from standard input and writes a JSON object to standard output. Marks, each one token with the virtual time in
nanoseconds: `setup-T` once everything before the first transaction is durable, `begin-N-T`, `ack-N-T`, `tick-T` while
it thinks, `end-T`; `event-K-T` and `done-K-T` around what happens between transactions. Under error faults
`rig.guest.programs.lives` runs the transactions and adds `fail-N-T`, `inject-N-T` and `heal-N-T`; for transactions
that are the engine's own `rig.guest.users.ordeals` does, and adds `error-N-T`; for several clients
`rig.guest.users.clients`, and `clients-C-T`. The mark `ack-N.NAME-T` names a step of an engine's own. If a recovered
database works on, `rig.guest.programs.laterlife` runs them. If there are two disks, both logs get the marks, and ticks
during commits.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from rig.contract.injections import ERRORS, Injection
from rig.contract.messages import decode
from rig.contract.scenario import NEIGHBOUR
from rig.engines import Database, EnduringDriver, load
from rig.engines.own import OwnDriver
from rig.filesystems import Served
from rig.guest.devices import disks, neighbour
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import LOGS
from rig.guest.programs import laterlife, lives, own, writers
from rig.guest.programs.clock import ProcessClock
from rig.guest.programs.connections import Connections
from rig.guest.programs.marks import marker, ticking
from rig.guest.site import LOG, Site
from rig.guest.users import clients, ordeals
from rig.guest.watch.forks import EngineFailed, play_on
from rig.workloads import Work

# Think time is random, so that background writeback runs at different places in different transactions; the ticks in
# the log show when.
_TICK_MS = 250
Mark = Callable[[str], None]
_Committing = Callable[[], AbstractContextManager[None]]


def run(
    site: Site,
    mark: Callable[[str], None],
    while_committing: _Committing = nullcontext,
) -> dict[str, Any]:
    """Carry out the workload of a scenario in the mounted directory; return the facts that the host needs."""
    orders, work = site.orders, site.work
    if orders.neighbour == NEIGHBOUR:
        while_committing = neighbour.busy
    if site.later_count:
        return laterlife.run(site, mark, partial(idle, mark=mark))
    if own_driver := load(orders.engine_module).own_driver:
        return _run_own(site, own_driver, mark, while_committing)
    if work.writers != (1, 1):
        return _run_writers(site, mark)
    if orders.injection in ERRORS:
        steps = lives.Steps(partial(set_up, site, mark), partial(idle, mark=mark))
        last = lives.run(site, mark, steps)
        return _facts(work, last.settings, last.issued, last.live)
    return _run_alone(site, mark, while_committing)


def _run_alone(site: Site, mark: Callable[[str], None], while_committing: _Committing) -> dict[str, Any]:
    """Carry out the transactions one after the other, with what happens between them."""
    orders, work = site.orders, site.work
    connections = Connections(site, mark, partial(idle, mark=mark))
    read_back: dict[str, str] = {}
    if not work.creates:
        connections.create()
        read_back = connections.database.settings()
    make_durable(site)
    mark("setup")
    pause = random.Random(f"think {orders.seed}")
    clock = ProcessClock(orders, mark)

    def think() -> None:
        idle(pause.uniform(0, 2 * orders.think_ms), mark)

    for number in range(1, orders.transaction_count + 1):
        operations = work.transaction(number)
        with _naming_damage(site, number):
            for event in work.events(number):
                connections.happen(event)
            think()
            clock.before(number)
            mark(f"begin-{number}")
            with while_committing():
                if number > work.creates:
                    connections.commit(operations)
                else:
                    connections.create()
            mark(f"ack-{number}")
            connections.note_acknowledgement()
        read_back = read_back or connections.database.settings()
    idle(orders.rest_ms, mark)
    mark("end")
    connections.close()
    return _facts(work, read_back, orders.transaction_count, []) | {
        "clock": clock.readings, "reached": connections.reached, "skipped": connections.skipped,
    }  # fmt: skip


@contextmanager
def _naming_damage(site: Site, number: int) -> Iterator[None]:
    """Raise EngineFailed for an error of the engine about its files, if there is no injection: nothing was cut yet.

    An error on a full disk stays an error of the rig, which made the disk too small.
    """
    try:
        yield
    except Exception as error:
        orders = site.orders
        driver = load(orders.engine_module).driver(orders.shim)
        is_about_files = isinstance(driver, EnduringDriver) and driver.is_fault(error)
        if not is_about_files or orders.injection is not Injection.NONE or not os.statvfs(site.directory).f_bavail:
            raise
        raise EngineFailed(
            f"before any cut, in transaction {number} of {orders.workload}, {orders.engine} failed: "
            f"{type(error).__name__}: {error}"
        ) from error


def _run_writers(site: Site, mark: Callable[[str], None]) -> dict[str, Any]:
    """Carry out a workload with several writers at a time."""
    database, read_back = set_up(site, mark)
    # A connection must not be open across the forks.
    database.close()
    commits = writers.run(site, mark)
    idle(site.orders.rest_ms, mark)
    mark("end")
    reached = list(writers.reached_situations(commits))
    return _facts(site.work, read_back, len(commits), []) | {"reached": reached}


def _run_own(
    site: Site, driver: OwnDriver, mark: Callable[[str], None], while_committing: _Committing
) -> dict[str, Any]:
    """Carry out transactions that are the engine's own."""
    own.make_directory(site)
    make_durable(site)
    mark("setup")
    think = partial(idle, mark=mark)
    if site.orders.injection in ERRORS:
        settings, live = ordeals.run(site, driver, mark, think)
        return own.facts(settings) | {"live": live}
    if site.orders.client_count > 1:
        return own.facts(clients.run(site, driver, mark, think))
    return own.facts(own.run(site, driver, mark, think, while_committing))


def _facts(work: Work, settings: dict[str, str], issued: int, live: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "settings": settings, "user_bytes": work.user_bytes(issued), "live": live, "clock": [], "reached": [],
        "skipped": {},
    }  # fmt: skip


def set_up(site: Site, mark: Callable[[str], None]) -> tuple[Database, dict[str, str]]:
    """Make the database, durably; return it and the settings that it reads back."""
    database = site.open_database()
    database.create(site.work.first_tables, site.work.initial)
    read_back = database.settings()
    make_durable(site)
    mark("setup")
    return database, read_back


def make_durable(site: Site) -> None:
    """Make the database durable, whatever the settings, so that the experiment begins from known content.

    Then only acknowledged transactions are at stake. If a file system wrote a block both with and without FUA, the log
    would otherwise leave the order of the two writes open until the block is written again.
    """
    os.sync()
    if isinstance(site.filesystem, Served):
        # The client's part of the first sync has only passed data to the server.
        os.sync()
    for node in filter(None, (site.device, site.second_device)):
        disks.settle(node)


def idle(pause_ms: float, mark: Callable[[str], None]) -> None:
    """Let time pass, with a tick in the log now and then."""
    until_ns = time.monotonic_ns() + int(pause_ms * 1e6)
    while (left_ns := until_ns - time.monotonic_ns()) > 0:
        time.sleep(min(left_ns / 1e9, _TICK_MS / 1e3))
        mark("tick")


def run_marked(site: Site, watch: Callable[[Mark], Mark] = lambda mark: mark) -> dict[str, Any]:
    """Carry out a workload that marks the log, or both logs if there are two disks.

    `watch` makes the workload's function out of the one that marks the logs; ticks within a transaction do not pass it.
    """
    if site.has_two_disks:
        mark = marker(DeviceMapper(), *LOGS)
        return run(site, watch(mark), partial(ticking, mark))
    return run(site, watch(marker(DeviceMapper(), LOG)))


def main() -> None:
    """Run the workload of the site that is the program's argument, and send the facts."""
    play_on(lambda send, site: send(run_marked(decode(Site, json.loads(site)))))


if __name__ == "__main__":
    main()
