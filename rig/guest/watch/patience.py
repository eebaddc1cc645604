"""Limits on what a process and its children use: processor time, wall time, memory. A caller has to check them.

In a recorder these times are virtual, so a busy host changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rig.contract.findings import FindingKind

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Limits:
    """What a process may use; 0 for unlimited memory. The limits are checked every `look_s` seconds."""

    processor_s: float
    wall_s: float
    memory_mib: int = 0
    look_s: float = 0.25


# For a whole workload in a recorder. The longest takes a few seconds of processor time; sleeping costs nothing there.
# Frequent checks would wake the machine often, and each time two recordings may begin to differ on a busy host
# (`rig.machines.machine.start`). A recorder has 1280 MiB, which also hold its disks and all files that a run reads.
OF_A_WORKLOAD = Limits(processor_s=60, wall_s=10_000, memory_mib=400, look_s=10)


class Patience:
    """The limits of one process, from now on."""

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid = pid
        self._limits = limits
        self._begin_s = time.monotonic()
        self._begin_processor_s: float | None = None

    @property
    def failure(self) -> tuple[FindingKind, str] | None:
        """The kind of finding, and words for it, if the process exceeds a limit; otherwise None."""
        wall_s = time.monotonic() - self._begin_s
        processor_s = _processor_s(self._pid)
        # Nothing was measured before the first look; the process may have computed for all that time.
        if self._begin_processor_s is None:
            self._begin_processor_s = max(0.0, processor_s - wall_s)
        used_s = processor_s - self._begin_processor_s
        if used_s >= self._limits.processor_s or wall_s >= self._limits.wall_s:
            return FindingKind.STUCK, f"it computed for {used_s:.0f} s of {wall_s:.0f} s"
        memory_mib = _memory_mib(self._pid) if self._limits.memory_mib else 0
        if memory_mib > self._limits.memory_mib:
            return FindingKind.OUT_OF_MEMORY, f"it took {memory_mib:.0f} MiB"
        return None


def children(pid: int) -> list[int]:
    """Return the children of a process, and of all its threads; none if it has ended."""
    pids: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                pids += map(int, file.read().split())
    return pids


def descendants(pid: int) -> list[int]:
    """Return the children of a process and theirs, each before its own children."""
    return [below for child in children(pid) for below in (child, *descendants(child))]


def _processor_s(pid: int) -> float:
    """Return the processor time of all threads of a process and of what it has started, see proc(5)."""
    # User and kernel time of the process, and of its children that have ended.
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(map(int, used)) / _TICKS_PER_S + _of_children(_processor_s, pid)


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (pages * _PAGE_BYTES >> 20) + _of_children(_memory_mib, pid)


def _of_children(used: Callable[[int], float], pid: int) -> float:
    total = 0.0
    for child in children(pid):
        with suppress(OSError):  # it has just ended
            total += used(child)
    return total
