"""A later life: the database recovers from a crash state, works on, and the power may go again at any moment.

The process that recovers the database is the one that works on, over the same connection: a clean close in between
would tidy up what the recovery left. Once the database has shown that it holds transactions 1 to P, the log gets a mark
`recovered-P-T`. Then come the marks of a workload (`rig.guest.programs.workload`), for the transactions after P.
Transactions that the cut before has taken are not carried out again as they were: each life has a seed of its own. So a
transaction that comes back from an earlier life is no transaction of this one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rig.contract.findings import Finding, FindingKind, words_of
from rig.engines import Database, load
from rig.engines.own import OwnDriver
from rig.guest.programs import own
from rig.guest.site import Site
from rig.guest.watch.forks import EngineFailed
from rig.workloads import Work


def run(site: Site, mark: Callable[[str], None], think: Callable[[float], None]) -> dict[str, Any]:
    """Recover and work on; return the finding of the recovery, or how the engine failed after it.

    Without a `recovered` mark the database did not come back, or no transaction is left.
    """
    own_driver = load(site.orders.engine_module).own_driver
    finding = _of_own(site, own_driver, mark, think) if own_driver else _of_database(site, mark, think)
    return {"finding": asdict(finding)}


def _of_own(site: Site, driver: OwnDriver, mark: Callable[[str], None], think: Callable[[float], None]) -> Finding:
    finding = own.recover(site, driver)
    if _goes_on(site, finding, mark):
        try:
            own.run(site, driver, mark, think, after=finding.recovered)
        except EngineFailed as error:
            return _failure(finding, error.kind, str(error))
    return finding


def _of_database(site: Site, mark: Callable[[str], None], think: Callable[[float], None]) -> Finding:
    try:
        database = site.open_database()
    except Exception as error:  # noqa: BLE001 - an engine may raise anything on a damaged file
        return Finding(FindingKind.UNOPENABLE, detail=words_of(error))
    finding = site.work.oracle().judge_open(database)
    try:
        if _goes_on(site, finding, mark):
            _carry_out(site, database, mark, think, finding.recovered or 0)
        database.close()
    except Exception as error:  # noqa: BLE001 - what the engine raises on a healthy disk is its failure
        with suppress(Exception):
            database.close()
        return _failure(finding, FindingKind.CORRUPT, words_of(error))
    return finding


def _goes_on(site: Site, finding: Finding, mark: Callable[[str], None]) -> bool:
    """Return whether the database came back whole with transactions left to carry out; if so, mark what it showed.

    Making a database is no work of a later life: a life begins with that, before its driver knows any table.
    """
    is_made = finding.recovered or not site.creates
    if finding.kind is not FindingKind.PREFIX or not is_made or not site.numbers_after(finding.recovered or 0):
        return False
    mark(f"recovered-{finding.recovered}")
    return True


def _carry_out(
    site: Site, database: Database, mark: Callable[[str], None], think: Callable[[float], None], recovered: int
) -> None:
    orders = site.orders
    skills = load(orders.engine_module).spec.skills
    lives = (*orders.lives, recovered)
    work = Work(orders.workload, orders.seed, orders.transaction_count, skills, lives)
    pause = random.Random(f"think {orders.seed} {lives}")
    for number in site.numbers_after(recovered):
        operations = work.transaction(number)
        think(pause.uniform(0, 2 * site.think_ms))
        mark(f"begin-{number}")
        database.commit(operations)
        mark(f"ack-{number}")
    mark("end")


def _failure(finding: Finding, kind: FindingKind, words: str) -> Finding:
    return Finding(kind, detail=f"it had recovered {finding.recovered} transactions; when it worked on: {words}")
