"""How long a sync takes at a place, and whether the disk gets a flush for it.

One block of a file whose space is already allocated is overwritten and synced, again and again, so that the file system
has no change of its own to write. No flash memory programs a page in less than 75 µs (a single-level cell made for low
latency: Kouchi and others, ISSCC 2020, paper 13.5, tPROG=75µs), and a turning disk takes milliseconds. So any sync that
is faster ended in a cache. In a drive with capacitors the cache is as good as the medium; in a host that emulates the
disk it may be memory that a power cut empties. The fastest sync decides, because a busy host can only slow a sync down.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.speed.trials import disks

MEDIUM_S_MIN = 75e-6
_BLOCK_BYTES = 4096
_COUNT = 60
_UNCOUNTED = 10


@dataclass(frozen=True)
class SyncProbe:
    """The syncs of one block, one after the other: the median and the fastest."""

    sync_s: float
    sync_s_min: float
    # Flushes that arrived at the disk for each; None if they are not counted.
    flush_per_sync: float | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return why these syncs may be worth less than they seem."""
        warnings = []
        if self.sync_s_min < MEDIUM_S_MIN:
            warnings.append(
                f"a sync takes {self.sync_s_min * 1e6:.0f} µs at best, and no flash memory programs a page in less "
                f"than {MEDIUM_S_MIN * 1e6:.0f} µs: it ends in a cache. Unless the drive has capacitors (power-loss "
                "protection), what was synced may be lost when the power goes, and syncs look cheaper than they are"
            )
        if self.flush_per_sync is not None and self.flush_per_sync < 0.5:
            warnings.append(
                f"{self.flush_per_sync:.2f} flushes arrived at the disk for each sync: most syncs did not flush it"
            )
        return tuple(warnings)


def probe(folder: Path, below: Sequence[Path]) -> SyncProbe:
    """Sync one block of a new file in a folder; `below` are the sysfs folders of its disks."""
    path = folder / "probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_UNCOUNTED):
            _sync_time_s(descriptor)
        before = disks.counters(below)
        taken_s = [_sync_time_s(descriptor) for _ in range(_COUNT)]
        after = disks.counters(below)
    finally:
        os.close(descriptor)
        path.unlink()
    flushes = after.since(before).flush_count if after and before else None
    return SyncProbe(statistics.median(taken_s), min(taken_s), None if flushes is None else flushes / _COUNT)


def _sync_time_s(descriptor: int) -> float:
    block = os.urandom(_BLOCK_BYTES)
    begin = time.perf_counter()
    os.pwrite(descriptor, block, 0)
    os.fdatasync(descriptor)
    return time.perf_counter() - begin
