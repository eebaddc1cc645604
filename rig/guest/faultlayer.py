"""A device that fails on demand, above the log of the recording, and a file that takes up the space of a disk.

Above the log, because dm-log-writes logs a failed write as if it had been good: what fails here never gets there, so
a recording still holds exactly what reached the disk. Normally the layer is `linear`, which passes FLUSH and FUA on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterable, Sequence

from rig.guest import disks
from rig.guest.devicemapper import SECTOR_BYTES, DeviceMapper, Target

NAME = "faults"
_SECTORS = disks.DISK_MIB * 2048
_BLOCK_BYTES = 4096
# Up for no second and down for a day, so that it fails from the moment of the swap on.
_ALWAYS_DOWN = "0 86400"
# struct fiemap and struct fiemap_extent of include/uapi/linux/fiemap.h.
_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap)
_FIEMAP_HEADER = struct.Struct("<QQIIII")
_FIEMAP_EXTENT = struct.Struct("<QQQ16xI12x")
_EXTENTS_MAX = 64
_FIEMAP_NOWHERE = 2 | 4  # FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_DELALLOC


class FaultLayer:
    """The layer, made; used by the recorder to build it and by the workload to swap its table."""

    def __init__(self, mapper: DeviceMapper, below: str) -> None:
        self._mapper = mapper
        self._below = below

    def create(self) -> str:
        """Create the layer in working order and return its node; raise OSError if the kernel lacks what it needs."""
        # A table is the only way to ask whether dm-flakey can do these; versions do not tell.
        for feature in ("error_writes", "error_reads"):
            self._mapper.create("probe", *self._table([(0, _SECTORS)], feature))
            self._mapper.remove("probe")
        return self._mapper.create(NAME, *self._table([], ""))

    def fail(self, feature: str, ranges: Sequence[tuple[int, int]] = ((0, _SECTORS),)) -> None:
        """Fail requests from now on: `error_writes` or `error_reads` in these ranges (sector, sector count)."""
        self._mapper.swap(NAME, *self._table(ranges, feature), unsynced=True)

    def heal(self) -> None:
        """Serve all requests again."""
        self._mapper.swap(NAME, *self._table([], ""), unsynced=True)

    def _table(self, ranges: Iterable[tuple[int, int]], feature: str) -> list[Target]:
        targets, end = [], 0
        for sector, count in sorted(ranges):
            if sector > end:
                targets.append(Target("linear", f"{self._below} {end}", sector - end, end))
            targets.append(Target("flakey", f"{self._below} {sector} {_ALWAYS_DOWN} 1 {feature}", count, sector))
            end = sector + count
        if end < _SECTORS:
            targets.append(Target("linear", f"{self._below} {end}", _SECTORS - end, end))
        return targets


def sectors_of(path: str) -> list[tuple[int, int]]:
    """Return where a file lies on its device, as (sector, sector count); what has no place yet is left out."""
    header = _FIEMAP_HEADER.pack(0, (1 << 64) - 1, 0, 0, _EXTENTS_MAX, 0)
    buffer = bytearray(header + bytes(_EXTENTS_MAX * _FIEMAP_EXTENT.size))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
    finally:
        os.close(descriptor)
    count = _FIEMAP_HEADER.unpack_from(buffer)[3]
    if count == _EXTENTS_MAX:
        raise OSError(f"{path} has more than {_EXTENTS_MAX} extents")
    extents = _FIEMAP_EXTENT.iter_unpack(buffer[_FIEMAP_HEADER.size :])
    return [
        (physical // SECTOR_BYTES, length // SECTOR_BYTES)
        for (_, physical, length, flags), _ in zip(extents, range(count), strict=False)
        if not flags & _FIEMAP_NOWHERE
    ]


class Ballast:
    """A file that leaves a file system a few free blocks."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "ballast")

    def leave(self, free_blocks: int) -> None:
        """Take up all space but so many blocks."""
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
            # ext4 gives freed blocks out again only after the journal transaction that freed them.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Give all space back."""
        if os.path.exists(self._path):
            os.unlink(self._path)
