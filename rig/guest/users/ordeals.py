"""A user's program under error faults: its disk fails, and it goes on, or it ends and is started again.

Outages come as for other engines (`rig.guest.programs.injections`), but a program has no checkpoints that the rig could
call: a strike there comes at the beginning of a transaction. The program says `fail i` for a transaction that returned
an error, and goes on with the next. Or it ends, whatever its exit code. Then the outage is over, and a file system that
takes no more writes is repaired and mounted again; a program that still runs on it is killed, as by a reboot. The
program recovers, and this is a live finding, `reopen-N.I` as for other engines. It goes on after the last transaction
that it has. If it lacks an acknowledged one, the workload is over.

An error may reach a program after its outage, so a program that has been through one may fail until it is started
again. Any other program has no reason to.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.injections import Injection
from rig.engines.own import Ended, NoResult, OwnDriver, OwnSession, Reply
from rig.guest.programs import own
from rig.guest.programs.injections import Stage, Strike, strikes
from rig.guest.programs.lives import is_writable, mend
from rig.guest.programs.outage import Outage
from rig.guest.programs.survivor import OPENINGS_MAX
from rig.guest.site import Site
from rig.guest.watch.forks import kill_children

_BRIEF = frozenset({Injection.FSYNC, Injection.FSYNCS})


def run(
    site: Site, driver: OwnDriver, mark: Callable[[str], None], think: Callable[[float], None]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Carry out the workload; return the settings that were read back, and the live findings."""
    ordeal = _Ordeal(site, driver, mark, think)
    try:
        return ordeal.carry_out(), ordeal.live
    except NoResult as failure:
        raise own.blame(site.orders.engine, failure) from None
    finally:
        kill_children()


class _Ordeal:
    """A program, its outages, and what both have come to."""

    def __init__(
        self, site: Site, driver: OwnDriver, mark: Callable[[str], None], think: Callable[[float], None]
    ) -> None:
        orders = site.orders
        self._site, self._driver, self._mark = site, driver, mark
        choice = Random(f"think {orders.seed}")
        self._pause: Callable[[], None] = lambda: think(choice.uniform(0, 2 * orders.think_ms))
        self._rest: Callable[[], None] = lambda: think(orders.rest_ms)
        self._injection = orders.injection
        self._count = orders.transaction_count
        self._session: OwnSession = driver.session(own.starter_of(site), own.task_of(site))
        self._runs = False
        self._outage = Outage(site, self, mark, self)
        # The transaction at which requests began to fail; 0 while none fail.
        self.struck_at = 0
        self.live: list[dict[str, Any]] = []
        self._due = 1
        self._issued = self._acked = 0
        self._failed: set[int] = set()
        self._last_ns = 0
        # Whether the program that runs has been through an outage.
        self._was_struck = False
        # Why the program has to be started again; empty if it runs.
        self._ending = ""
        self._is_over = False

    def carry_out(self) -> dict[str, str]:
        """Carry out all transactions and strikes; return the settings."""
        ahead = deque(strikes(self._injection, self._site.orders.seed, self._count))
        while not self._is_done:
            self._pause()
            if ahead and ahead[0].number <= self._due:
                self._strike(ahead.popleft())
            else:
                self._transact()
            if self._ending:
                self._start_again()
        self._rest()
        self._mark("end")
        if self._runs:
            self._close()
        return self._session.settings()

    def is_mapped(self, name: str) -> bool:  # noqa: ARG002 - as every driver
        """Return False: nobody knows which files a program has mapped, and advice about such a file does no harm."""
        return False

    def forget(self) -> None:
        """Do nothing: what a program holds in memory is its own."""

    @property
    def _is_done(self) -> bool:
        return self._is_over or self._due > self._count

    def _strike(self, strike: Strike) -> None:
        """Let transactions fail as a strike has it."""
        if strike.stage is Stage.CHECKPOINT:
            strike = replace(strike, stage=Stage.BEGIN)
        failure_count = 0
        for attempt in range(strike.attempts_max):
            if self._is_done or self._ending:
                break
            if attempt and self._injection is not Injection.DISKFULL_DATA:
                self._pause()
            self._was_struck = True
            # Half of these pass after one failed request, because a program may try again before it answers.
            is_passing = self._injection is Injection.FSYNC and strike.reopens
            self._outage.begin(strike, failure_count, self, self._last_ns, is_passing=is_passing)
            has_failed = self._transact()
            failure_count += has_failed
            self._outage.settle()
            if has_failed and self._injection in _BRIEF:
                self._outage.end()
            if has_failed and self._injection is Injection.FSYNC:
                break
            # A program whose data still finds room goes on until something finds none.
            if failure_count and not has_failed and self._injection is Injection.DISKFULL_DATA:
                break
            self._outage.write_back()
        self._outage.end()
        if not self._ending and not is_writable(self._site.directory):
            kill_children()
            self._runs, self._ending = False, "the file system took no more writes"

    def _transact(self) -> bool:
        """Carry out a transaction; return whether it failed."""
        number = self._issued = self._due
        self._mark(f"begin-{number}")
        self._runs, begin_ns = True, time.monotonic_ns()
        try:
            answer = self._session.commit(number)
        except Ended as ending:
            if not self._was_struck:
                raise
            self._runs, self._ending = False, f"it {ending.words}"
            answer = Reply(failure=ending.words)
        self._last_ns = time.monotonic_ns() - begin_ns
        if not self._was_struck:
            own.require_success(number, answer)
        self._due = number + 1
        has_failed = answer.failure is not None
        if has_failed:
            self._failed.add(number)
            self._mark(f"error-{number}")
        else:
            self._acked = number
            self._failed.discard(number)
            self._mark(answer.mark(number))
        return has_failed

    def _start_again(self) -> None:
        """Have the program recover on a healthy disk; go on after the last transaction that it has."""
        self._outage.end()
        mended = mend(self._site)
        finding = self._recovery(mended)
        words = "; ".join(filter(None, [finding.detail, f"after {self._ending}"]))
        self.live.append({
            "state": f"reopen-{self._issued}.{len(self.live) + 1}", "acked": self._acked, "issued": self._issued,
            "kind": finding.kind, "recovered": finding.recovered, "detail": words,
        })  # fmt: skip
        self._ending, self._was_struck = "", False
        after = finding.recovered
        if finding.kind is not FindingKind.PREFIX or after is None or not self._acked <= after <= self._issued:
            self._is_over = True
            return
        self._due = after + 1
        task = replace(own.task_of(self._site), after=after, last=self._count)
        self._session = self._driver.session(own.starter_of(self._site), task)

    def _recovery(self, mended: str) -> Finding:
        orders = replace(self._site.orders, failed=tuple(sorted(self._failed)))
        site = replace(self._site, orders=orders)
        finding = own.recover(site, self._driver)
        for _ in range(1, OPENINGS_MAX):
            # The kernel reports a write error to the first sync after it, so a careful program is asked again.
            if finding.kind is not FindingKind.PREFIX:
                finding = own.recover(site, self._driver)
        if not mended or finding.kind is FindingKind.PREFIX:
            return replace(finding, detail="; ".join(filter(None, [mended, finding.detail])))
        # If the file system needed repair, wrong content is never blamed on the program.
        detail = f"{mended}; seen as {finding.kind}: {finding.detail}"
        return replace(finding, kind=FindingKind.FILESYSTEM_DAMAGE, recovered=None, detail=detail)

    def _close(self) -> None:
        try:
            self._session.close()
        except NoResult:
            if not self._was_struck:
                raise
