"""A workload whose process is killed now and then, started again, and goes on; later the power goes.

The seed draws one of every four transactions. Its process is killed before one of the calls that sync, truncate, rename
or remove a file, or right after the acknowledgement. A transaction that makes fewer calls is killed after its
acknowledgement. The page cache survives. The next life opens the database, which recovers, and shows its whole content;
a user's program says what it finds. A mark `recovered-P` in the log says that transactions 1 to P were seen. They count
as acknowledged from then on, because a user who has read them may have acted on them. The same process works on, over
the same connection, with the transaction after P. The seed stays the same, so a transaction that is carried out again
does the same again.

Each restart is a live finding `kill-N`, as under `processkill`. The workload ends early if the database comes back
wrong, or fails when it works on. A user's program that fails before it has acknowledged anything may not know how to
work on; then there is no result.

If all syncs are swallowed, this is done by supervision, from the end of the setup on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rig.contract.findings import Finding, FindingKind, words_of
from rig.contract.messages import decode
from rig.contract.orders import Shim
from rig.engines import Database, load
from rig.engines.own import OwnDriver
from rig.engines.syncs import Call, CallName
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.programs import own, workload
from rig.guest.programs.marks import marker
from rig.guest.site import LOG, Site
from rig.guest.watch.forks import Ending, EngineFailed, Send
from rig.guest.watch.sample import sample
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise, tell

# One of this many transactions is killed, and one of this many kills comes after the acknowledgement.
_KILL_EVERY, _ACKED_EVERY = 4, 4
_SWALLOWED = frozenset({CallName.SYNC, CallName.WRITEBACK})


@dataclass
class Killer:
    """Where a life has to die, and how far it has come."""

    # Transaction -> the number of the call before which it is killed; 0 for right after its acknowledgement.
    deaths: Mapping[int, int]
    swallows: bool = False
    # A first life begins with the setup, whose syncs are real.
    is_first: bool = True
    issued: int = 0
    acked: int = 0
    where: str = ""
    has_ended: bool = False
    _calls_seen: int = 0

    def on_move(self, place: WorkloadPosition) -> Action:
        """Take note of the transaction; die at its acknowledgement if it is due and lives still."""
        if place.phase is WorkloadPhase.COMMIT:
            self.issued, self._calls_seen = place.number, 0
        elif place.phase is WorkloadPhase.ACKED:
            self.acked = place.number
            if place.number in self.deaths:
                self.where = f"killed right after transaction {place.number} was acknowledged"
                return Action.KILL
        self.has_ended |= place.phase is WorkloadPhase.END
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Die before the call that was drawn; swallow a sync if all are swallowed."""
        if place.phase is WorkloadPhase.COMMIT:
            self._calls_seen += 1
            if self.deaths.get(place.number, 0) == self._calls_seen:
                what = f"{call}, {kind}" if kind else str(call)
                self.where = f"killed in transaction {place.number} before its call {self._calls_seen} ({what})"
                return Action.KILL
        is_late = not self.is_first or place.phase is not WorkloadPhase.SETUP
        return Action.PRETEND if self.swallows and is_late and call.name in _SWALLOWED else Action.CARRY_OUT


def plan(seed: int, count: int, call_counts: tuple[int, ...]) -> dict[int, int]:
    """Return the transactions to be killed, each with its `Killer.deaths`; a sample made these numbers of calls."""
    choice = random.Random(f"killcut {seed}")
    calls = [made for made in call_counts if made]
    deaths = {}
    for rank, first in enumerate(range(1, count + 1, _KILL_EVERY)):
        number = choice.randint(first, min(count, first + _KILL_EVERY - 1))
        is_inside = calls and (rank + 1) % _ACKED_EVERY
        deaths[number] = choice.randint(1, choice.choice(calls)) if is_inside else 0
    return deaths


def run(site: Site) -> dict[str, Any]:
    """Carry out the workload through all its restarts; return the facts that the host needs."""
    orders, log = site.orders, marker(DeviceMapper(), LOG)
    deaths = plan(orders.seed, orders.transaction_count, sample(orders).call_counts)
    live: list[dict[str, Any]] = []
    settings: dict[str, str] = {}
    seen, where = Seen(), ""
    while True:
        strike = Killer(deaths, swallows=orders.shim == Shim.EATMYDATA, is_first=not where)
        life = partial(_live, site, log, seen, is_first=not where)
        ending = supervise(site, life, strike, writes=False, limits=own.limits_of(site))
        is_sound = not ending.exit_code
        if where:
            finding = _finding(site, ending, strike)
            is_sound &= seen.admits(finding)
            reached = Seen(max(seen.known, strike.acked), max(seen.issued, strike.issued))
            live.append(_live_finding(f"kill-{len(live) + 1}", where, seen if is_sound else reached, finding))
            seen = replace(seen, known=max(seen.known, finding.recovered or 0))
        else:
            ending.require("the workload")
            settings = ending.messages[0]
        if strike.issued > strike.acked:
            log(f"fail-{strike.issued}")
        if not (strike.where and is_sound):
            break
        del deaths[strike.issued]
        seen, where = Seen(max(seen.known, strike.acked), max(seen.issued, strike.issued)), strike.where
    if not strike.has_ended:
        log("end")
    user_bytes = site.work.user_bytes(max(seen.issued, strike.issued))
    return {"settings": settings, "user_bytes": user_bytes, "live": live}


@dataclass(frozen=True)
class Seen:
    """What is known when a life begins: the transactions that were shown or acknowledged, and those that had begun."""

    known: int = 0
    issued: int = 0

    def admits(self, finding: Finding) -> bool:
        """Return whether a restarted database shows what it must, and nothing that nobody has written."""
        return finding.kind is FindingKind.PREFIX and self.known <= (finding.recovered or 0) <= self.issued


def _finding(site: Site, ending: Ending, strike: Killer) -> Finding:
    """Return what a restart showed, or how the engine failed after it; raise if it says nothing about the engine."""
    if not ending.exit_code:
        return decode(Finding, ending.messages[-1])
    if ending.failure is None or (site.is_own and ending.messages and not strike.acked):
        ending.require("the workload, when it went on after a restart,")
    assert ending.failure
    return Finding(ending.failure, detail=ending.why)


def _live_finding(state: str, where: str, seen: Seen, finding: Finding) -> dict[str, Any]:
    return {
        "state": state, "acked": seen.known, "issued": seen.issued, "kind": finding.kind,
        "recovered": finding.recovered, "detail": f"{where}; {finding.detail}" if finding.detail else where,
    }  # fmt: skip


def _live(site: Site, log: Callable[[str], None], seen: Seen, send: Send, *, is_first: bool) -> None:
    """Begin or recover, then work on until the end. This runs in the fork."""

    def mark(text: str) -> None:
        kind, _, number = text.partition("-")
        if kind == "ack":
            # Otherwise a call of another thread could be the last, once the acknowledgement is in the log.
            tell(f"committed-{number}")
        log(text)
        tell(text)

    driver = load(site.orders.engine_module).own_driver
    life = _OwnLife(site, mark, driver) if driver else _DatabaseLife(site, mark)
    if is_first:
        send(life.begin())
        life.work_on(None)
        return
    finding = life.recover()
    send(asdict(finding))
    if seen.admits(finding):
        log(f"recovered-{finding.recovered}")
        if failure := life.work_on(finding.recovered):
            words = f"it had recovered {finding.recovered} transactions; when it worked on: {failure.detail}"
            send(asdict(replace(failure, detail=words)))


class _DatabaseLife:
    """A life of a database that carries out the rig's transactions."""

    def __init__(self, site: Site, mark: Callable[[str], None]) -> None:
        self._site = site
        self._mark = mark
        self._database: Database | None = None

    def begin(self) -> dict[str, str]:
        """Make the database; return the settings that it reads back."""
        self._database, settings = workload.set_up(self._site, self._mark)
        return settings

    def recover(self) -> Finding:
        """Open the database and judge its content."""
        try:
            self._database = self._site.open_database()
        except Exception as error:  # noqa: BLE001 - an engine may raise anything
            return Finding(FindingKind.UNOPENABLE, detail=words_of(error))
        return self._site.work.oracle().judge_open(self._database)

    def work_on(self, after: int | None) -> Finding | None:
        """Carry out the transactions that are left; return how the engine failed in a later life."""
        site, database = self._site, self._database
        assert database
        pause = random.Random(f"think {site.orders.seed} {after}")
        try:
            for number in site.numbers_after(after or 0):
                workload.idle(pause.uniform(0, 2 * site.think_ms), self._mark)
                self._mark(f"begin-{number}")
                database.commit(site.work.transaction(number))
                self._mark(f"ack-{number}")
            workload.idle(site.rest_ms, self._mark)
            self._mark("end")
            database.close()
        except Exception as error:
            if after is None:
                raise
            return Finding(FindingKind.CORRUPT, detail=words_of(error))
        return None


class _OwnLife:
    """A life of an engine whose transactions are its own."""

    def __init__(self, site: Site, mark: Callable[[str], None], driver: OwnDriver) -> None:
        self._site = site
        self._mark = mark
        self._driver = driver

    def begin(self) -> dict[str, str]:
        """Make the directory; return the engine's settings."""
        own.make_directory(self._site)
        workload.make_durable(self._site)
        self._mark("setup")
        return own.settings(self._site, self._driver)

    def recover(self) -> Finding:
        """Have the engine recover."""
        return own.recover(self._site, self._driver)

    def work_on(self, after: int | None) -> Finding | None:
        """Carry out the transactions that are left; return how an engine failed that had begun to work on."""
        site, acked = self._site, list[str]()
        think = partial(workload.idle, mark=self._mark)
        if not site.numbers_after(after or 0):
            think(site.rest_ms)
            self._mark("end")
            return None

        def mark(text: str) -> None:
            self._mark(text)
            acked.extend([text] if text.startswith("ack-") else [])

        try:
            own.run(site, self._driver, mark, think, after=after)
        except EngineFailed as error:
            if after is None or not acked:
                raise
            return Finding(error.kind, detail=str(error))
        return None
