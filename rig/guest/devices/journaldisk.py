"""A journal on a disk of its own: a second stack of devices with a write log of its own, and marks in both logs.

The stack is that of `rig.guest.recorder`, smaller. The file system leaves room for it: on a verifier, which has one
device for both, the data stands first and the journal's disk behind it, `FIRST_BYTE` on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rig.guest.devices import disks
from rig.guest.devices.devicemapper import DeviceMapper, Target

INJECTION = "twodisk"
DISK_MIB = 8
DATA_MIB = disks.DISK_MIB - DISK_MIB
FIRST_BYTE = DATA_MIB << 20
LOG_DISK = "/dev/ram1"
_LOGS = ("log", "log-b")
_SECTORS = DISK_MIB * 2048
# While a transaction is under way both logs are marked this often, so that what one disk and then the other completes
# falls into different spans: a flush takes milliseconds on the device profiles there are.
_TICK_S = 250e-6


def is_wanted(scenario: Mapping[str, Any]) -> bool:
    """Return whether the journal of a scenario has a disk of its own."""
    return bool(scenario["injection"] == INJECTION)


def settle(device: str) -> None:
    """Flush a disk twice, so that of what was written before nothing can be lost, and no order is open.

    ext4 notes at the mount where its journal is, by a FUA write of its superblock, and writes that again from the page
    cache later. No log tells in which order the two reached the disk unless two FLUSHes stand between them.
    """
    node = os.open(device, os.O_RDONLY)
    try:
        for _ in range(2):
            os.fsync(node)
    finally:
        os.close(node)


class JournalDisk:
    """The second stack; `node` is what the journal is made on."""

    def __init__(self, mapper: DeviceMapper, delay_params: Callable[[str], str]) -> None:
        self._mapper = mapper
        self.disk = disks.add_cached_disk(1, DISK_MIB)
        params = delay_params(self.disk)
        self._has_profile = bool(params)
        below = mapper.create("profile-b", Target("delay", params, _SECTORS)) if params else self.disk
        self.node = mapper.create(_LOGS[1], Target("log-writes", f"{below} {LOG_DISK}", _SECTORS))
        for node in {self.disk, below, self.node}:
            disks.require_write_cache(node)

    def remove(self) -> tuple[str, dict[str, int]]:
        """Take the stack down to the disk; return the status of the log and the requests that the disk counted."""
        status = self._mapper.status(_LOGS[1])
        if "logging_disabled" in status:
            raise RuntimeError("the log of the journal's disk is full; record fewer transactions")
        counts = disks.request_counts(self.disk)
        self._mapper.remove(_LOGS[1])
        if self._has_profile:
            self._mapper.remove("profile-b")
        return status, counts


class Marker:
    """Writes each mark to both logs, to that of the data disk first, one mark after the other."""

    def __init__(self, mapper: DeviceMapper) -> None:
        self._mapper = mapper
        self._lock = threading.Lock()

    def mark(self, text: str) -> None:
        """Write a mark with the time."""
        with self._lock:
            line = f"mark {text}-{time.monotonic_ns()}"
            for log in _LOGS:
                self._mapper.message(log, line)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Mark ticks from a thread for the length of a block."""
        is_over = threading.Event()

        def tick() -> None:
            while not is_over.wait(_TICK_S):
                self.mark("tick")

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
