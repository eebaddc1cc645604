"""Marks in the write logs of a recording: what the workload did, and when.

If a file system has its journal on a second disk, a verifier has one device for both disks: first the data, then the
journal (`rig.contract.geometry`). So every mark is in both logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rig.guest.devices.devicemapper import DeviceMapper

# How often both logs are marked during a transaction, so that requests which the two disks complete one after the other
# fall between different marks: a flush takes milliseconds on every device.
_TICK_S = 250e-6


def marker(mapper: DeviceMapper, *logs: str) -> Callable[[str], None]:
    """Return a function that writes a mark with the time to every log; threads may share it."""
    one_at_a_time = threading.Lock()

    def mark(text: str) -> None:
        # Without this lock a thread that has read the time could be overtaken, and the log's time would run backwards.
        with one_at_a_time:
            line = f"mark {text}-{time.monotonic_ns()}"
            for log in logs:
                mapper.message(log, line)

    return mark


@contextmanager
def ticking(mark: Callable[[str], None]) -> Iterator[None]:
    """Write tick marks from a thread for the length of a block."""
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(_TICK_S):
            mark("tick")

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
