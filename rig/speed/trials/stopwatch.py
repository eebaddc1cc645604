"""What is measured while a trial runs: time, latencies, flushes of the disk, bytes of the processes."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rig.speed.trials import disks
from rig.speed.trials.busy import Busy
from rig.speed.trials.space import Watcher, allocated_bytes

_PROCESSES = Path("/proc")
_Number = TypeVar("_Number", int, float)


class Stopwatch:
    """What a workload tells while it runs, and what the block layer and the process count meanwhile."""

    def __init__(self, directory: Path, below: Sequence[Path], watcher: Watcher | None = None) -> None:
        """Take the directory, the sysfs folders of its disks, and the watcher of the space there, if any."""
        self.directory = directory
        self._watcher = watcher
        self._below = below
        self._facts: dict[str, Any] = {}
        self._latencies_ns: list[int] = []
        self._counts: Counter[str] = Counter()
        self._read_back: dict[str, str] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count time, flushes and bytes for the length of a block; only once in a trial."""
        assert not self._facts, "a trial is measured once"
        sync_all(self.directory)
        with Busy() as busy:
            disk, written, cpu_s = disks.counters(self._below), _written_bytes(), _cpu_s()
            if self._watcher:
                self._watcher.begin()
            busy.begin()
            begin_ns = time.perf_counter_ns()
            yield
            wall_ns = time.perf_counter_ns() - begin_ns
            busy_ns, cpu_after_s = busy.ns(), _cpu_s()
        space = self._watcher.end() if self._watcher else None
        after, written_after = disks.counters(self._below), _written_bytes()
        self._facts = {
            "wall_ns": wall_ns,
            "disk": asdict(after.since(disk)) if after and disk else None,
            "process_bytes": _difference(written_after, written),
            "cpu_s": _difference(cpu_after_s, cpu_s),
            "busy_ns": busy_ns,
            "space": space,
            "allocated_bytes": _allocated_bytes(self.directory),
            "files": {path.name: path.stat().st_size for path in sorted(self.directory.iterdir()) if path.is_file()},
        }

    def lap(self, taken_ns: int) -> None:
        """Note the latency of one transaction."""
        self._latencies_ns.append(taken_ns)

    def count(self, name: str, amount: float) -> None:
        """Add to a count that belongs to the trial, such as a number of errors or a figure of the document's own."""
        self._counts[name] += amount  # type: ignore[assignment]

    def reads_back(self, settings: Mapping[str, str]) -> None:
        """Note the settings that the engine reads back."""
        self._read_back = dict(settings)

    @property
    def facts(self) -> dict[str, Any]:
        """Return everything that was measured and noted."""
        assert self._facts, "nothing was measured"
        return {
            **self._facts,
            "latencies_ns": self._latencies_ns,
            "counts": dict(self._counts),
            "read_back": self._read_back,
        }


def sync_all(directory: Path) -> None:
    """Write out all dirty pages on the file system of a directory, so that no earlier write is measured."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if library.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed", str(directory))
    finally:
        os.close(descriptor)


def _allocated_bytes(directory: Path) -> int | None:
    """Return the disk space of all files below a directory; None if they cannot be seen."""
    try:
        return sum(allocated_bytes(directory).values())
    except OSError:
        return None


def _written_bytes() -> int | None:
    """Return the bytes that this process and its descendants caused to be written to a disk.

    Descendants are living processes, such as a server, and children that these have waited for.
    """
    try:
        return sum(_bytes_written_by(process) for process in _family(_PROCESSES / "self"))
    except (OSError, KeyError, ValueError):
        return None


def _family(process: Path) -> Iterator[Path]:
    yield process
    for thread in (process / "task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _family(_PROCESSES / child)


def _bytes_written_by(process: Path) -> int:
    lines = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    return int(lines["write_bytes"])


def _cpu_s() -> float | None:
    """Return the processor time of this process and of the descendants that `_written_bytes` counts.

    For living descendants it is in ticks: nobody waits for a server while it is measured.
    """
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    try:
        _, *others = _family(_PROCESSES / "self")
        ticks = sum(_ticks(process) for process in others)
    except (OSError, IndexError, ValueError):
        return None
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + ticks / os.sysconf("SC_CLK_TCK")


def _ticks(process: Path) -> int:
    # After the name, which may hold anything: fields 14 to 17 of proc(5), for itself and for children it waited for.
    words = (process / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15]))


def _difference(after: _Number | None, before: _Number | None) -> _Number | None:
    return None if after is None or before is None else after - before
