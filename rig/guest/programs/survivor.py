"""The workload under error faults: a careful program whose disk fails, and which then continues with what it finds.

Whatever the engine raises at a transaction or a checkpoint, the program reads the database, over the same connection
after a rollback or after reopening it, and continues from what it finds. The content must hold every transaction
whose commit returned. It may hold the transaction that raised, even in one reading and not in the next. Each reading is
a live finding, named `kept-N.I` or `reopen-N.I`: N transactions had been issued, and it is the Ith finding of the
recording. A content that no transaction explains, or that lacks a required transaction, ends the workload.
Reopening the database starts another process with the state that this one leaves: `rig.guest.programs.lives`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from rig.contract.findings import Finding, FindingKind, words_of
from rig.contract.injections import Injection
from rig.engines import Database, EnduringDatabase, EnduringDriver, enduring, load
from rig.guest.devices import mounts
from rig.guest.judge import kept_open
from rig.guest.programs.injections import Stage, Strike, strikes
from rig.guest.programs.outage import Outage
from rig.guest.site import Site

# The kernel reports a pending write error to the first sync after a reopen; a careful program tries again.
OPENINGS_MAX = 3
# Injections that end as soon as the engine has seen an error, before it cleans up.
_BRIEF = frozenset({Injection.FSYNC, Injection.FSYNCS})


@dataclass
class State:
    """What one life leaves to the next, in JSON's types."""

    # The next transaction: all before it are in the database, as far as the program has seen.
    due: int = 1
    # The last transaction whose commit returned. One that raised may show in a reading, but need not be kept.
    acked: int = 0
    issued: int = 0
    # Whether `due` is under way.
    is_under_way: bool = False
    # How many strikes have begun, and the transaction at which requests began to fail (0 while none fail).
    strike_count: int = 0
    struck_at: int = 0
    # How long the last attempt at a transaction took.
    last_ns: int = 0
    is_over: bool = False
    # The last life has reached the end and only has to close the database.
    has_ended: bool = False
    # Why the database has to be reopened, and how often that has been tried.
    error: str = ""
    opening_count: int = 0
    kept_open: bool = False
    # The transaction that was due when the engine last ended a life.
    grieved_at: int = 0
    live: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def note(state: State, word: str, finding: Finding, error: str) -> None:
    """Note a finding; then continue from it or end the workload."""
    words = "; ".join(filter(None, [finding.detail, f"after {error}" if error else ""]))
    state.live.append({
        "state": f"{word}-{state.issued}.{len(state.live) + 1}", "acked": state.acked, "issued": state.issued,
        "kind": finding.kind, "recovered": finding.recovered, "detail": words,
    })  # fmt: skip
    if finding.recovered is not None and max(state.acked, state.issued - 1) <= finding.recovered <= state.issued:
        state.due = finding.recovered + 1
    else:
        state.is_over = True


class _Reopen(Exception):
    """The database has to be reopened, in another life."""


class Survivor:
    """One life of the program."""

    def __init__(
        self, site: Site, mark: Callable[[str], None], think: Callable[[], None], state: State, save: Callable[[], None]
    ) -> None:
        orders, work = site.orders, site.work
        self._site = site
        self._injection = orders.injection
        self._driver = enduring_driver(site)
        self._grows_at_checkpoint = load(orders.engine_module).spec.grows_at_checkpoint
        self._count = orders.transaction_count
        self._transaction = work.transaction
        self._oracle = work.oracle()
        self._outage = Outage(site, self._driver, mark, state)
        self._strikes = strikes(self._injection, orders.seed, self._count)
        self._mark = mark
        self._think = think
        self._state = state
        self.save = save
        self._database: EnduringDatabase | None = None
        # Whether the connection was still usable after the last error.
        self._was_kept = False

    def begin(self, database: Database) -> None:
        """Start with a database that has just been made."""
        self._database = enduring(database)
        self.save()

    def reopen(self, mended: str) -> bool:
        """Open and judge the database; return False if another life has to try again."""
        self._state.opening_count += 1
        self.save()
        finding = self._open()
        if finding.kind is not FindingKind.PREFIX and self._state.opening_count < OPENINGS_MAX:
            self.close()
            return False
        if mended:
            # If the file system needed repair, wrong content is never blamed on the database.
            kind = finding.kind if finding.kind is FindingKind.PREFIX else FindingKind.FILESYSTEM_DAMAGE
            detail = f"{mended}; seen as {finding.kind}: {finding.detail}"
            finding = Finding(kind, finding.recovered, detail if kind != finding.kind else mended)
        finding = kept_open(finding) if self._state.kept_open else finding
        note(self._state, "reopen", finding, self._state.error)
        self._state.error, self._state.opening_count, self._state.kept_open = "", 0, False
        self.save()
        return True

    def run(self) -> bool:
        """Carry out the transactions and strikes; return False if the database has to be reopened first."""
        try:
            while not self._is_done:
                self._think()
                begun = self._state.strike_count
                if begun < len(self._strikes) and self._strikes[begun].number <= self._state.due:
                    self._state.strike_count += 1
                    self._strike(self._strikes[begun])
                else:
                    self._in_peace()
        except _Reopen:
            return False
        return True

    def close(self) -> None:
        """Close the database, if it is open."""
        if self._database:
            self._try(self._database.close)
        self._database = None

    def _in_peace(self) -> None:
        # A background failure may surface only now.
        if error := self._transact():
            self._reopen(error)

    def _strike(self, strike: Strike) -> None:
        stage = self._stage(strike)
        if stage is Stage.CHECKPOINT:
            self._in_peace()
        elif self._injection is Injection.DISKFULL_LOG and (error := self._try(self._live_database.shrink_log)):
            self._reopen(error)
        seen, failure_count = None, 0
        for attempt in range(strike.attempts_max):
            if self._is_done:
                break
            if attempt and self._injection is not Injection.DISKFULL_DATA:
                self._think()
            self._outage.begin(strike, failure_count, self._live_database, self._state.last_ns)
            error = self._attempt(stage)
            failure_count += bool(error)
            self._outage.settle()
            seen = error or seen
            if error and (not self._goes_on(error, strike) or self._injection is Injection.FSYNC):
                break
            # While rows still find room in the data files, continue until one does not.
            if not error and self._injection is Injection.DISKFULL_DATA and (stage is Stage.CHECKPOINT or seen):
                break
            self._outage.write_back()
        if seen and not self._state.is_over and (strike.reopens or not self._was_kept):
            self._reopen(seen)
        self._outage.end()

    def _stage(self, strike: Strike) -> Stage:
        """Return where in a transaction a strike begins for this engine."""
        is_late = self._injection is not Injection.DISKFULL_DATA or self._grows_at_checkpoint
        if strike.stage is not Stage.CHECKPOINT or (is_late and self._live_database.has_checkpoints):
            return strike.stage
        return Stage.BEGIN

    def _attempt(self, stage: Stage) -> Exception | None:
        """Try a transaction or a checkpoint; return the engine's error, if any."""
        if stage is Stage.CHECKPOINT:
            self.save()
            return self._try(self._live_database.checkpoint)
        return self._transact()

    def _transact(self) -> Exception | None:
        number = self._state.due
        self._mark(f"begin-{number}")
        self._state.issued, self._state.is_under_way = number, True
        self.save()
        begin_ns = time.monotonic_ns()
        error = self._try(partial(self._live_database.commit, self._transaction(number)))
        self._state.last_ns = time.monotonic_ns() - begin_ns
        self._mark(f"fail-{number}" if error else f"ack-{number}")
        if not error:
            self._state.acked, self._state.due = number, number + 1
        self._state.is_under_way = False
        self.save()
        return error

    def _goes_on(self, error: Exception, strike: Strike) -> bool:
        """Roll back and judge the database over the same connection; return whether that connection is usable."""
        # The database cannot be judged while no read succeeds.
        if self._injection in _BRIEF or (self._injection is Injection.READ and not strike.reopens):
            self._outage.end()
        self._was_kept = False
        if self._try(self._live_database.rollback):
            return False
        finding = self._oracle.judge_open(self._live_database)
        # An engine may legitimately refuse to serve a connection after an error, or while requests still fail.
        if finding.kind in {FindingKind.CORRUPT, FindingKind.UNOPENABLE, FindingKind.OUT_OF_MEMORY}:
            return False
        note(self._state, "kept", finding, words_of(error))
        self._was_kept = not self._state.is_over
        return self._was_kept

    def _reopen(self, error: Exception) -> NoReturn:
        """Close the database and end the outage; another life will reopen it."""
        self._state.error = words_of(error)
        self.close()
        self._state.kept_open = bool(mounts.holders(self._site.directory))
        self._outage.end()
        self.save()
        raise _Reopen

    def _open(self) -> Finding:
        try:
            self._database = enduring(self._site.open_database())
        except Exception as error:
            if not self._driver.is_fault(error):
                raise
            return Finding(FindingKind.UNOPENABLE, detail=words_of(error))
        return self._oracle.judge_open(self._database)

    def _try(self, action: Callable[[], object]) -> Exception | None:
        """Return the disk error that the engine raises, if any; let other exceptions through, as they are our bugs."""
        try:
            action()
        except Exception as error:
            if not self._driver.is_fault(error):
                raise
            # The traceback keeps the locals of the engine's calls, and so perhaps the database open after its close.
            return error.with_traceback(None)
        return None

    @property
    def _is_done(self) -> bool:
        return self._state.due > self._count or self._state.is_over

    @property
    def _live_database(self) -> EnduringDatabase:
        assert self._database, "the workload continues without a database"
        return self._database


def enduring_driver(site: Site) -> EnduringDriver:
    """Return the engine's driver; raise TypeError if it lacks what error faults need."""
    driver = load(site.orders.engine_module).driver()
    if not isinstance(driver, EnduringDriver):
        raise TypeError(f"{site.orders.engine} cannot tell errors of the disk from others; see docs/extend/engine.md")
    return driver
