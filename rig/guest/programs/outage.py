"""An outage under error faults: requests to the disk fail, or the disk is full, while a strike lasts.

The marks `inject-N` and `heal-N` say when.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rig.contract.injections import Injection
from rig.guest.devices import disks
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.faultlayer import Ballast, FaultLayer
from rig.guest.programs.injections import Stage, Strike
from rig.guest.site import Site

_SYNC_FILE_RANGE_WRITE = 2
_LOOK_S = 0.001
_DISKFULL = frozenset({Injection.DISKFULL_LOG, Injection.DISKFULL_DATA})
_libc = ctypes.CDLL(None, use_errno=True)


class Struck(Protocol):
    """The state of an outage that is needed if the process that began it dies."""

    # The transaction at which requests began to fail; 0 while none fail.
    struck_at: int


class MappingFiles(Protocol):
    """What an outage asks about files."""

    def is_mapped(self, name: str) -> bool:
        """Return whether a file of that name is mapped into memory, so that its pages cannot be dropped."""


class Forgetful(Protocol):
    """What an outage asks of a database."""

    def forget(self) -> None:
        """Drop the pages that the connection holds in memory."""


class Outage:
    """Applies the strikes of one injection to the disk."""

    def __init__(self, site: Site, driver: MappingFiles, mark: Callable[[str], None], state: Struck) -> None:
        self._injection = site.orders.injection
        self._directory = site.directory
        self._driver = driver
        self._layer = FaultLayer(DeviceMapper(), site.device_below)
        self._device = site.device
        self._ballast = Ballast(self._directory)
        self._mark = mark
        self._state = state
        self._pending: threading.Thread | None = None
        self._passing: threading.Thread | None = None
        self._is_ended = threading.Event()

    def begin(
        self, strike: Strike, failure_count: int, database: Forgetful, span_ns: int, *, is_passing: bool = False
    ) -> None:
        """Make requests fail now or soon, if they do not yet; on a full disk, leave more room after each failure.

        An outage that `is_passing` is over as soon as a request has failed: a second try is served.
        """
        is_new = not self._state.struck_at
        if is_new:
            self._state.struck_at = strike.number
            # Before the first failure, and from this thread: marks from two threads could interfere.
            self._mark(f"inject-{strike.number}")
        if self._injection in _DISKFULL:
            self._ballast.leave(strike.free_blocks + failure_count * strike.free_blocks_step)
        elif is_new and strike.stage is Stage.MIDST:
            self._pending = threading.Thread(target=self._fail_after, args=(strike.share * span_ns / 1e9,))
            self._pending.start()
        elif is_new:
            self._fail(database)
        if is_new and is_passing:
            self._is_ended.clear()
            self._passing = threading.Thread(target=self._heal_after_one)
            self._passing.start()

    def settle(self) -> None:
        """Wait until a delayed outage has begun."""
        if self._pending:
            self._pending.join()
            self._pending = None

    def end(self) -> None:
        """Serve all requests again, if they fail now."""
        if not self._state.struck_at:
            return
        if self._passing:
            self._is_ended.set()
            self._passing.join()
            self._passing = None
        if self._injection in _DISKFULL:
            self._ballast.remove()
        else:
            self._layer.heal()
        self._mark(f"heal-{self._state.struck_at}")
        self._state.struck_at = 0

    def write_back(self) -> None:
        """Make the kernel write back dirty pages, as it may at any time, so that background writes fail too."""
        if self._state.struck_at and self._injection is Injection.WRITE:
            # A file system that has shut down opens no file and writes nothing back.
            with suppress(OSError):
                for descriptor in self._files():
                    _libc.sync_file_range(descriptor, ctypes.c_long(0), ctypes.c_long(0), _SYNC_FILE_RANGE_WRITE)

    def _heal_after_one(self) -> None:
        if pending := self._pending:
            pending.join()
        before = disks.request_counts(self._device)
        while disks.request_counts(self._device) == before:
            if self._is_ended.wait(_LOOK_S):
                return
        self._layer.heal()

    def _fail_after(self, delay_s: float) -> None:
        time.sleep(delay_s)
        self._layer.fail("error_writes")

    def _fail(self, database: Forgetful) -> None:
        if self._injection is not Injection.READ:
            self._layer.fail("error_writes")
            return
        database.forget()
        for descriptor in self._files():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        self._layer.fail("error_reads")

    def _files(self) -> Iterator[int]:
        for path in sorted(Path(self._directory).rglob("*")):
            # A mapped file stays in memory despite the advice.
            if path.is_file() and not self._driver.is_mapped(path.name):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)
