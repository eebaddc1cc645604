"""A device that fails on demand, above the log of the recording, and a file that takes up the space of a disk.

The device is above the log because dm-log-writes logs a failed write as if it had succeeded. A write that fails here
never reaches the log, so a recording holds exactly what reached the disk. Normally the layer is `linear`, which passes
FLUSH and FUA on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rig.guest.devices import disks
from rig.guest.devices.devicemapper import DeviceMapper, Target

NAME = "faults"
_BLOCK_BYTES = 4096
# dm-flakey: up for 0 seconds, down for a day, so that it fails from the swap on.
_ALWAYS_DOWN = "0 86400"


class FaultLayer:
    """The layer. The recorder creates it; the workload swaps its table."""

    def __init__(self, mapper: DeviceMapper, below: str) -> None:
        self._mapper = mapper
        self._below = below
        self._sector_count = disks.sector_count(below)

    @contextmanager
    def device(self) -> Iterator[str]:
        """Create the layer, in working order, for the length of a block; raise OSError if the kernel lacks it."""
        # Only loading a table shows whether dm-flakey has these features; its version does not.
        for feature in ("error_writes", "error_reads"):
            with self._mapper.device("probe", self._flakey(feature)):
                pass
        with self._mapper.device(NAME, self._linear) as node:
            yield node

    def fail(self, feature: str) -> None:
        """Fail requests from now on: all writes and flushes with `error_writes`, all reads with `error_reads`."""
        self._mapper.swap(NAME, self._flakey(feature), unsynced=True)

    def heal(self) -> None:
        """Serve all requests again."""
        self._mapper.swap(NAME, self._linear, unsynced=True)

    # One target each, never a table of several: dm sends a flush to every target of a table.
    @property
    def _linear(self) -> Target:
        return Target("linear", f"{self._below} 0", self._sector_count)

    def _flakey(self, feature: str) -> Target:
        return Target("flakey", f"{self._below} 0 {_ALWAYS_DOWN} 1 {feature}", self._sector_count)


class Ballast:
    """A file that leaves a file system a few free blocks."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "ballast")

    def leave(self, free_blocks: int) -> None:
        """Take up all space except `free_blocks` blocks."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            size, step = os.fstat(descriptor).st_size, 16 << 20
            while step >= _BLOCK_BYTES:
                try:
                    os.posix_fallocate(descriptor, size, step)
                    size += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
            os.ftruncate(descriptor, max(0, size - free_blocks * _BLOCK_BYTES))
            # Freed blocks may be reallocated only after the journal has committed the transaction that freed them.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Free all the space."""
        if self.is_there:
            os.unlink(self._path)

    @property
    def is_there(self) -> bool:
        """Whether the file system is kept full."""
        return os.path.exists(self._path)
