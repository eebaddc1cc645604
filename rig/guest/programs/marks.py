"""Marks in the write logs of a recording: what the workload did, and when.

If a file system has its journal on a second disk, a verifier has one device for both disks: first the data, then the
journal (`rig.contract.geometry`). So every mark is in both logs.
"""

from __future__ import annotations

import fcntl
import os
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
def among_processes(mark: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Give the same function to the forks of a block: none is overtaken between reading the time and writing it."""
    with os.fdopen(os.memfd_create("marks"), "wb") as lock:
        # The threads of a process own its lock together, and any of them would release it.
        thread_by_thread = threading.Lock()

        def one_at_a_time(text: str) -> None:
            with thread_by_thread:
                fcntl.lockf(lock, fcntl.LOCK_EX)
                try:
                    mark(text)
                finally:
                    fcntl.lockf(lock, fcntl.LOCK_UN)

        yield one_at_a_time


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
