"""For how long the processors of a machine have run programs and the kernel: the busy time.

The kernel counts to the nanosecond how long each processor ran something other than its idle task, kernel threads
included (Documentation/scheduler/sched-stats.rst, field 7 of a processor). Where the clock counts instructions, that
time is the number of instructions.

The delays of a modelled disk are no part of it, although dm-delay passes a delay below 50 ms by polling the clock in a
kernel thread (drivers/md/dm-delay.c since Linux 6.7): that thread's time is subtracted. The thread also hands the
requests to the disk and completes them, so this small share of the work is not counted either.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self

_PROCESSES = Path("/proc")
_RUN_NS_FIELD = 7
# The parent of all kernel threads.
_KTHREADD = 2
# The part of the name that kernels with names of 15 characters keep.
_POLLER = "dm-delay-flush-"
# Long enough for the processor to become idle.
_REST_S = 1e-5
_READ_BYTES = 1 << 16


class Busy:
    """The busy time of this machine from `begin` until it is asked for; None where the kernel does not say.

    Reading costs instructions, so all files are opened when this is entered, and parsed afterwards.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        self._before: list[bytes] = []

    def __enter__(self) -> Self:
        try:
            for path in (_PROCESSES / "schedstat", *(each / "schedstat" for each in pollers())):
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self._close()
        return self

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._stats()

    def ns(self) -> int | None:
        """Return how long all processors have been busy since."""
        after = self._stats()
        return _of_programs(*after) - _of_programs(*self._before) if after and self._before else None

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def _stats(self) -> list[bytes]:
        # The kernel counts what runs only when it stops running.
        time.sleep(_REST_S)
        try:
            return [_content(descriptor) for descriptor in self._files]
        except OSError:
            return []


def _of_programs(scheduler: bytes, *polled: bytes) -> int:
    lines = [line.split() for line in scheduler.splitlines()]
    busy_ns = sum(int(words[_RUN_NS_FIELD]) for words in lines if words[0].startswith(b"cpu"))
    return busy_ns - sum(int(text.split()[0]) for text in polled)


def _content(descriptor: int) -> bytes:
    """Return a whole file of /proc; a single read may return only a part."""
    content = b""
    while part := os.pread(descriptor, _READ_BYTES, len(content)):
        content += part
    return content


def pollers() -> list[Path]:
    """Return the kernel threads that poll while a delay of dm-delay passes; empty where none can be seen."""
    threads = _PROCESSES / f"{_KTHREADD}/task/{_KTHREADD}/children"
    pids = threads.read_text().split() if threads.exists() else []
    return [_PROCESSES / pid for pid in pids if _name(_PROCESSES / pid).startswith(_POLLER)]


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        # The thread ended meanwhile.
        return ""
