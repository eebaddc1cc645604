"""Engines whose transactions are their own (`rig.engines.own`): carry them out between marks, and have them recover.

Each engine gets a folder of its own, empty at first. The first transaction begins before the engine is started, so a
cut may come before the engine has made anything.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.injections import ERRORS
from rig.engines import load
from rig.engines.own import NoResult, OwnDriver, OwnSession, Process, Reply, Task
from rig.guest.programs import creations
from rig.guest.programs.injections import strikes
from rig.guest.site import Site
from rig.guest.watch.children import Child
from rig.guest.watch.forks import EngineFailed, kill_children
from rig.guest.watch.patience import OF_A_WORKLOAD, Limits

_LIMITS = Limits(processor_s=20, wall_s=1000, memory_mib=400, look_s=10)
# A later life may take this many times as long as the check of a crash state.
_LIFE_PATIENCE = 3


def limits_of(site: Site) -> Limits:
    """Return the limits of a site's workload; a program that nobody has tried yet gets narrower limits.

    A later life is lived in real time, and has a few times as long as the check of a crash state.
    """
    if site.later_count:
        processor_s = _LIFE_PATIENCE * load(site.orders.engine_module).spec.state_limit_s
        return Limits(processor_s, 3 * processor_s)
    if not site.is_own:
        return OF_A_WORKLOAD
    # A program that is made many times is started as often; under errors it may be started anew after each strike.
    orders = site.orders
    starts = orders.transaction_count if site.creates else 1
    if orders.injection in ERRORS:
        starts += len(strikes(orders.injection, orders.seed, orders.transaction_count))
    return replace(_LIMITS, processor_s=_LIMITS.processor_s * starts)


def make_directory(site: Site) -> None:
    """Make the empty directory in which the engine is started, or one for each creation."""
    os.mkdir(site.engine_directory)
    if site.creates:
        creations.make_directories(task_of(site))


def run(  # noqa: PLR0917 - all types differ; mypy catches a swap
    site: Site,
    driver: OwnDriver,
    mark: Callable[[str], None],
    think: Callable[[float], None],
    while_committing: Callable[[], AbstractContextManager[None]] = nullcontext,
    after: int | None = None,
) -> dict[str, str]:
    """Carry out all transactions in an empty, durable directory; return the settings that were read back.

    In a later life, carry out those that follow the `after` transactions that were recovered. Raise EngineFailed if the
    engine does anything that its driver does not expect.
    """
    orders = site.orders
    pause = random.Random(f"think {orders.seed}")
    try:
        session = _session(site, driver, after)
        for number in site.numbers_after(after or 0):
            think(pause.uniform(0, 2 * site.think_ms))
            mark(f"begin-{number}")
            with while_committing():
                answer = session.commit(number)
            require_success(number, answer)
            mark(answer.mark(number))
        think(site.rest_ms)
        mark("end")
        session.close()
        return session.settings()
    except NoResult as failure:
        raise blame(orders.engine, failure) from None
    finally:
        kill_children()


def require_success(number: int, answer: Reply) -> None:
    """Raise NoResult if the engine says that a transaction has failed."""
    if answer.failure is not None:
        raise NoResult(FindingKind.DIED, f"said that transaction {number} failed; it said: {answer.failure}")


def blame(engine: str, failure: NoResult) -> EngineFailed:
    """Return the error of an engine that did on a healthy disk what leaves no result."""
    return EngineFailed(f"nothing was wrong with the disk, but {engine} {failure.words}", failure.kind)


def recover(site: Site, driver: OwnDriver) -> Finding:
    """Have the engine recover; return what it found, or how it failed."""
    if not os.path.isdir(site.engine_directory):
        return Finding(FindingKind.UNOPENABLE, detail="its directory is gone")
    try:
        if site.creates:
            return creations.recovered(driver, _start, task_of(site))
        return driver.recovered(starter_of(site), task_of(site))
    except NoResult as failure:
        return Finding(failure.kind, detail=f"it {failure.words}")
    finally:
        kill_children()


def settings(site: Site, driver: OwnDriver) -> dict[str, str]:
    """Return the settings that are read back without a start of the engine."""
    return _session(site, driver, None).settings()


def facts(settings: dict[str, str]) -> dict[str, Any]:
    """Return the facts that the host needs about a recording."""
    return {"settings": settings, "user_bytes": 0, "live": [], "clock": [], "reached": [], "skipped": {}}


def _session(site: Site, driver: OwnDriver, after: int | None) -> OwnSession:
    if site.creates:
        return creations.Creations(driver, _start, task_of(site))
    return driver.session(starter_of(site), task_of(site) if after is None else _later_task(site, after))


def starter_of(site: Site) -> Callable[[Sequence[str]], Process]:
    """Return what starts a process of the engine in its directory."""
    return partial(_start, site.engine_directory)


def _start(directory: str, arguments: Sequence[str]) -> Process:
    return Child(arguments, directory)


def task_of(site: Site) -> Task:
    """Return what the orders of a site ask of the engine."""
    orders = site.orders
    return Task(
        orders.settings, site.engine_directory, orders.seed, orders.transaction_count, failed=orders.failed,
        client_count=orders.client_count,
    )  # fmt: skip


def _later_task(site: Site, after: int) -> Task:
    # With the same seed: a recovery that knows what each transaction wrote does not know which life wrote it.
    return replace(task_of(site), after=after, last=site.numbers_after(after)[-1])
