"""The workload of the error arm: a careful program whose disk fails, and that continues with what it finds afterwards.

Whatever the engine raises at a transaction or a checkpoint, the program reads the database, over the same connection
after a rollback or after reopening it, and continues from what it finds. The content must hold every transaction
before the one that raised, and may hold that one. Each reading is a live finding, named `kept-N.I` or `reopen-N.I`:
N transactions had been issued, and it is the Ith finding of the recording.
A content that no transaction explains, or that lacks one, ends the workload.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.injections import Injection
from rig.engines import Database, EnduringDatabase, EnduringDriver, enduring, load
from rig.guest.devices import mounts
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.faultlayer import Ballast, FaultLayer
from rig.guest.programs.injections import Stage, Strike, strikes
from rig.guest.site import Site

# The kernel reports a pending write error to the first sync after a reopen; a careful program tries again.
_OPENINGS_MAX = 3
_SYNC_FILE_RANGE_WRITE = 2
# Injections that end as soon as the engine has seen an error, before it cleans up.
_BRIEF = frozenset({Injection.FSYNC, Injection.FSYNCS})
_DISKFULL = frozenset({Injection.DISKFULL_LOG, Injection.DISKFULL_DATA})
_libc = ctypes.CDLL(None, use_errno=True)


class Survivor:
    """The program; after `run` its database is open, or None if it could not be reopened."""

    def __init__(self, site: Site, database: Database, mark: Callable[[str], None], think: Callable[[], None]) -> None:
        orders, work = site.orders, site.work
        self._site = site
        self._injection = orders.injection
        self._driver = _enduring_driver(site)
        self._count = orders.transaction_count
        self._transaction = work.transaction
        self._oracle = work.oracle()
        self._outage = _Outage(site, self._driver, mark)
        self._planned = list(strikes(self._injection, orders.seed, self._count))
        self._mark = mark
        self._think = think
        self.database: EnduringDatabase | None = enduring(database)
        self.live: list[dict[str, Any]] = []
        self.issued = 0
        # The next transaction: all before it are in the database.
        self._due = 1
        self._is_over = False
        # How long the last attempt at a transaction took.
        self._last_ns = 0
        # Whether the connection was still usable after the last error.
        self._was_kept = False

    def run(self) -> None:
        """Carry out the transactions and all strikes."""
        while not self._is_done:
            self._think()
            if self._planned and self._planned[0].number <= self._due:
                self._struck(self._planned.pop(0))
            else:
                self._in_peace()

    def _in_peace(self) -> None:
        # A background failure may surface only now.
        if error := self._transact():
            self._reopen(error)

    def _struck(self, strike: Strike) -> None:
        if strike.stage is Stage.CHECKPOINT and self._held.has_checkpoints:
            self._in_peace()
        elif self._injection is Injection.DISKFULL_LOG and (error := self._tried(self._held.shrink_log)):
            self._reopen(error)
        seen = None
        for attempt in range(strike.attempts_max):
            if self._is_done:
                break
            if attempt and self._injection is not Injection.DISKFULL_DATA:
                self._think()
            self._outage.begin(strike, attempt, self._held, self._last_ns)
            error = self._attempt(strike.stage)
            self._outage.settle()
            seen = error or seen
            if error and (not self._goes_on(error, strike) or self._injection is Injection.FSYNC):
                break
            if not error and self._injection is Injection.DISKFULL_DATA:
                break
            self._outage.write_back()
        if seen and not self._is_over and (strike.reopens or not self._was_kept):
            self._reopen(seen)
        self._outage.end()

    def _attempt(self, stage: Stage) -> Exception | None:
        """Try a transaction or a checkpoint; return the engine's error, if any."""
        if stage is Stage.CHECKPOINT and self._held.has_checkpoints:
            return self._tried(self._held.checkpoint)
        return self._transact()

    def _transact(self) -> Exception | None:
        number = self._due
        self._mark(f"begin-{number}")
        self.issued = number
        begin_ns = time.monotonic_ns()
        error = self._tried(partial(self._held.commit, self._transaction(number)))
        self._last_ns = time.monotonic_ns() - begin_ns
        self._mark(f"fail-{number}" if error else f"ack-{number}")
        self._due += 0 if error else 1
        return error

    def _goes_on(self, error: Exception, strike: Strike) -> bool:
        """Roll back and judge the database over the same connection; return whether that connection is usable."""
        # The database cannot be judged while no read succeeds.
        if self._injection in _BRIEF or (self._injection is Injection.READ and not strike.reopens):
            self._outage.end()
        self._was_kept = False
        if self._tried(self._held.rollback):
            return False
        finding = self._oracle.judge_open(self._held)
        # An engine may legitimately refuse to serve a connection after an error, or while requests still fail.
        if finding.kind in {FindingKind.CORRUPT, FindingKind.UNOPENABLE}:
            return False
        self._note("kept", finding, error)
        self._was_kept = not self._is_over
        return self._was_kept

    def _reopen(self, error: Exception) -> None:
        """Close, end the outage, repair the file system if it has shut down, then open and judge the database."""
        if self.database:
            self._tried(self.database.close)
        self._outage.end()
        mended = _mended(self._site)
        finding = Finding(FindingKind.UNOPENABLE)
        for _ in range(_OPENINGS_MAX):
            finding = self._opened()
            if finding.kind is FindingKind.PREFIX:
                break
        if mended:
            # If the file system needed repair, wrong content is never blamed on the database.
            kind = finding.kind if finding.kind is FindingKind.PREFIX else FindingKind.FILESYSTEM_DAMAGE
            detail = f"{mended}; seen as {finding.kind}: {finding.detail}"
            finding = Finding(kind, finding.recovered, detail if kind != finding.kind else mended)
        self._note("reopen", finding, error)

    def _opened(self) -> Finding:
        if self.database:
            self._tried(self.database.close)
        self.database = None
        try:
            self.database = enduring(self._site.open_database())
        except Exception as error:
            if not self._driver.is_fault(error):
                raise
            return Finding(FindingKind.UNOPENABLE, detail=_words(error))
        return self._oracle.judge_open(self.database)

    def _note(self, word: str, finding: Finding, error: Exception) -> None:
        """Note a finding, then continue from it or end."""
        self.live.append({
            "state": f"{word}-{self.issued}.{len(self.live) + 1}", "acked": self._due - 1, "issued": self.issued,
            "kind": finding.kind, "recovered": finding.recovered,
            "detail": f"{finding.detail}; after {_words(error)}" if finding.detail else f"after {_words(error)}",
        })  # fmt: skip
        if finding.recovered is not None and self._due - 1 <= finding.recovered <= self.issued:
            self._due = finding.recovered + 1
        else:
            self._is_over = True

    def _tried(self, action: Callable[[], object]) -> Exception | None:
        """Return the disk error that the engine raises, if any; let other exceptions through, they are our bugs."""
        try:
            action()
        except Exception as error:
            if not self._driver.is_fault(error):
                raise
            return error
        return None

    @property
    def _is_done(self) -> bool:
        return self._due > self._count or self._is_over

    @property
    def _held(self) -> EnduringDatabase:
        assert self.database, "the workload continues without a database"
        return self.database


class _Outage:
    """Applies the strikes of one injection to the disk; the marks `inject-N` and `heal-N` say when."""

    def __init__(self, site: Site, driver: EnduringDriver, mark: Callable[[str], None]) -> None:
        self._injection = site.orders.injection
        self._directory = site.directory
        self._driver = driver
        self._layer = FaultLayer(DeviceMapper(), site.device_below)
        self._ballast = Ballast(self._directory)
        self._mark = mark
        self._number = 0
        self._pending: threading.Thread | None = None

    def begin(self, strike: Strike, attempt: int, database: EnduringDatabase, span_ns: int) -> None:
        """Make requests fail now or soon, if they do not yet; on a full disk, add the free blocks of this attempt."""
        is_new = not self._number
        if is_new:
            self._number = strike.number
            # Before the first failure, and from this thread: marks from two threads could interfere.
            self._mark(f"inject-{strike.number}")
        if self._injection in _DISKFULL:
            self._ballast.leave(strike.free_blocks + attempt * strike.free_blocks_step)
        elif is_new and strike.stage is Stage.MIDST:
            self._pending = threading.Thread(target=self._fail_after, args=(strike.share * span_ns / 1e9,))
            self._pending.start()
        elif is_new:
            self._fail(database)

    def settle(self) -> None:
        """Wait until a delayed outage has begun."""
        if self._pending:
            self._pending.join()
            self._pending = None

    def end(self) -> None:
        """Serve all requests again, if they fail now."""
        if not self._number:
            return
        if self._injection in _DISKFULL:
            self._ballast.remove()
        else:
            self._layer.heal()
        self._mark(f"heal-{self._number}")
        self._number = 0

    def write_back(self) -> None:
        """Make the kernel write back dirty pages, as it may at any time, so that background writes fail too."""
        if self._number and self._injection is Injection.WRITE:
            # A file system that has shut down opens no file and writes nothing back.
            with suppress(OSError):
                for descriptor in self._files():
                    _libc.sync_file_range(descriptor, ctypes.c_long(0), ctypes.c_long(0), _SYNC_FILE_RANGE_WRITE)

    def _fail_after(self, delay_s: float) -> None:
        time.sleep(delay_s)
        self._layer.fail("error_writes")

    def _fail(self, database: EnduringDatabase) -> None:
        if self._injection is not Injection.READ:
            self._layer.fail("error_writes")
            return
        database.forget()
        for descriptor in self._files():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        self._layer.fail("error_reads")

    def _files(self) -> Iterator[int]:
        for path in sorted(Path(self._directory).iterdir()):
            # A mapped file stays in memory despite the advice.
            if path.is_file() and not self._driver.is_mapped(path.name):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)


def _enduring_driver(site: Site) -> EnduringDriver:
    driver = load(site.orders.engine_module).driver()
    if not isinstance(driver, EnduringDriver):
        raise TypeError(f"{site.orders.engine} cannot tell errors of the disk from others; see docs/extending.md")
    return driver


def _mended(site: Site) -> str:
    """If the file system takes no more writes, unmount, repair and mount it; return what was done, else nothing."""
    if _is_writable(site.directory):
        return ""
    filesystem = site.filesystem
    mounts.unmount(site.directory)
    said = filesystem.repair(site.device)
    mounts.mount(site.device, filesystem.kernel_type, site.orders.mount_options, site.directory)
    return f"mounted again after {said}"


def _is_writable(directory: str) -> bool:
    # A file system that has shut down may not report itself as read-only (Linux 6.12), so try a write.
    path = os.path.join(directory, "probe")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        os.unlink(path)
    except OSError:
        return False
    return True


def _words(error: Exception) -> str:
    # Drivers like the standard library's carry the engine's own name for an error.
    name = next((str(value) for key, value in vars(error).items() if key.endswith("_errorname")), "")
    return f"{name or type(error).__name__}: {error}"
