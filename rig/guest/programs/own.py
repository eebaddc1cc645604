"""Engines whose transactions are their own (`rig.engines.own`): carry them out between marks, and have them recover.

Each engine gets a folder of its own, empty at first. The first transaction begins before the engine is started, so a
cut may come before the engine has made anything.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.engines.own import Grief, OwnDriver, Process, Task
from rig.guest.site import Site
from rig.guest.watch.children import Child
from rig.guest.watch.forks import EngineFailed, kill_children
from rig.guest.watch.patience import OF_A_WORKLOAD, Limits

_LIMITS = Limits(processor_s=20, wall_s=1000, memory_mib=400, look_s=10)


def limits_of(site: Site) -> Limits:
    """Return the limits of a site's workload; a program that nobody has tried yet gets narrower limits."""
    return _LIMITS if site.is_own else OF_A_WORKLOAD


def make_directory(site: Site) -> None:
    """Make the empty directory in which the engine is started."""
    os.mkdir(site.engine_directory)


def run(
    site: Site,
    driver: OwnDriver,
    mark: Callable[[str], None],
    think: Callable[[float], None],
    while_committing: Callable[[], AbstractContextManager[None]],
) -> dict[str, str]:
    """Carry out all transactions in an empty, durable directory; return the settings that were read back.

    Raise EngineFailed if the engine does anything that its driver does not expect.
    """
    orders = site.orders
    pause = random.Random(f"think {orders.seed}")
    try:
        session = driver.session(_starter(site), _task(site))
        for number in range(1, orders.transaction_count + 1):
            think(pause.uniform(0, 2 * orders.think_ms))
            mark(f"begin-{number}")
            with while_committing():
                session.commit(number)
            mark(f"ack-{number}")
        think(orders.rest_ms)
        mark("end")
        session.close()
        return session.settings()
    except Grief as grief:
        raise EngineFailed(f"nothing was wrong with the disk, but {orders.engine} {grief.words}") from None
    finally:
        kill_children()


def recovered(site: Site, driver: OwnDriver) -> Finding:
    """Have the engine recover; return what it found, or how it failed."""
    if not os.path.isdir(site.engine_directory):
        return Finding(FindingKind.UNOPENABLE, detail="its directory is gone")
    try:
        return driver.recovered(_starter(site), _task(site))
    except Grief as grief:
        return Finding(grief.kind, detail=f"it {grief.words}")
    finally:
        kill_children()


def facts(settings: dict[str, str]) -> dict[str, Any]:
    """Return the facts that the host needs about a recording."""
    return {"settings": settings, "user_bytes": 0, "live": [], "clock": [], "reached": [], "skipped": {}}


def _starter(site: Site) -> Callable[[Sequence[str]], Process]:
    return partial(_started, site.engine_directory)


def _started(directory: str, arguments: Sequence[str]) -> Process:
    return Child(arguments, directory)


def _task(site: Site) -> Task:
    orders = site.orders
    return Task(orders.settings, site.engine_directory, orders.seed, orders.transaction_count)
