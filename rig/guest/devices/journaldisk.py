"""Write marks to two logs at once, for a file system whose journal has a disk of its own.

A verifier has one device for both disks: first the data, then the journal (`rig.contract.geometry`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import LOGS

# How often both logs are marked during a transaction, so that requests which the two disks complete one after the other
# fall between different marks: a flush takes milliseconds on every device.
_TICK_S = 250e-6


class Marker:
    """Writes each mark to both logs, first to that of the data disk; one mark at a time."""

    def __init__(self, mapper: DeviceMapper) -> None:
        self._mapper = mapper
        self._lock = threading.Lock()

    def mark(self, text: str) -> None:
        """Write a mark with the time."""
        with self._lock:
            line = f"mark {text}-{time.monotonic_ns()}"
            for log in LOGS:
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
