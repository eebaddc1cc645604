"""Limit the time that a machine can use, not the wall-clock time, so that a busy host does not make it late.

Among twelve other programs a machine gets a tenth of a processor, and a wall-clock limit mistakes that for a hang. This
clock therefore stops while the machine waits for a processor. It counts the time in which the machine ran, and the time
in which it neither ran nor wanted to: a sleeping guest times out as soon as a spinning one. If this process did not run
either, in a frozen container for example, only the first second or so of that time counts. A limit on the wall clock,
many times as long, catches a machine that gets almost no processor time. A process counts with all that it started: a
machine is the child of a launcher, and the processes of a guest are children of a user-mode kernel.

Both times are in proc(5): `stat` has the processor time of a process, `schedstat` the time that a thread waited for a
processor. A kernel without CONFIG_SCHED_INFO has no `schedstat`; there the wait is unknown, and the limit applies to
the wall clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_WALL_FACTOR = 10
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Indices of fields of `stat` after the name: user and system time, and the same of children that have ended.
_TIMES = (11, 12, 13, 14)
# How often a waiter checks the limit. Two spinning threads use up the limit in half its time.
_LOOK_S = 0.5
# Two checks further apart than this are a pause.
_PAUSE_S = _LOOK_S + 1


class Limit:
    """The time that a process has, from now on, to do what we wait for.

    Nothing is measured until the first check: all time before that counts as time that the process could use.
    """

    def __init__(self, process_id: int, limit_s: float, awaited: str) -> None:
        self.awaited = awaited
        self._proc = Path("/proc", str(process_id))
        self._limit_s = limit_s
        self._begin_s = time.monotonic()
        self._processor_begin_s: float | None = None
        self._waits_s: dict[str, float] = {}
        self._processor_s = self._waited_s = self._paused_s = self._wall_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the time has been used up."""
        self._look()
        return self._used_s() >= self._limit_s or self._wall_s >= self._limit_s * _WALL_FACTOR

    @property
    def used_s(self) -> float:
        """The time that the process has had so far: it ran, or neither ran nor wanted to."""
        self._look()
        return self._used_s()

    @property
    def look_again_s(self) -> float:
        """How long to wait for the machine before checking `is_over` again."""
        return min(_LOOK_S, max(0.01, self._limit_s - self._used_s()))

    def __str__(self) -> str:
        """Say what was awaited, for how long, and what the machine got of that time."""
        times = (
            f"it ran for {self._processor_s:.1f} s and waited {self._waited_s:.1f} s for a processor, "
            f"in {self._wall_s:.1f} s by the wall clock"
        )
        if self._used_s() >= self._limit_s:
            return f"no {self.awaited} within {self._limit_s:g} s: {times}"
        return (
            f"no {self.awaited} within {_WALL_FACTOR} times {self._limit_s:g} s: {times}; "
            "this host is too busy, run fewer programs or fewer machines at a time (--jobs)"
        )

    def _used_s(self) -> float:
        return max(self._processor_s, self._wall_s - self._waited_s - self._paused_s)

    def _look(self) -> None:
        before_s, self._wall_s = self._wall_s, time.monotonic() - self._begin_s
        processor_s, waits_s = sum(map(_used_s_of, descendants(self._proc))), self._waits_now_s()
        if self._processor_begin_s is None:
            self._processor_begin_s = processor_s
        else:
            # The figure of a thread is lost when it ends, so add up the differences.
            grown = (wait_s - self._waits_s.get(thread, 0.0) for thread, wait_s in waits_s.items())
            waited_s = sum(max(0.0, wait_s) for wait_s in grown)
            self._waited_s += waited_s
            self._paused_s += max(0.0, self._wall_s - before_s - waited_s - _PAUSE_S)
        self._processor_s = max(self._processor_s, processor_s - self._processor_begin_s)
        self._waits_s = waits_s

    def _waits_now_s(self) -> dict[str, float]:
        waits_s = {}
        for process in descendants(self._proc):
            with suppress(OSError):  # the process is gone
                for thread in (process / "task").iterdir():
                    with suppress(OSError):  # the thread is gone
                        waits_s[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        return waits_s


def descendants(process: Path) -> Iterator[Path]:
    """Yield the folder in /proc of a process, and the folders of all that descend from it, each after its parent."""
    yield process
    try:
        numbers = (process / "task" / process.name / "children").read_text().split()
    except OSError:  # the process is gone, or the kernel has no CONFIG_PROC_CHILDREN
        return
    for number in numbers:
        yield from descendants(process.parent / number)


def _used_s_of(process: Path) -> float:
    """Return the processor time of a process and of its children that have ended, in seconds.

    It is 0 if the process is gone, which its owner will notice.
    """
    try:
        text = (process / "stat").read_text()
    except OSError:
        return 0.0
    # The second field is the name in parentheses; it may contain any character.
    words = text.rpartition(")")[2].split()
    return sum(int(words[field]) for field in _TIMES) / _TICKS_PER_S
