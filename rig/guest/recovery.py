"""Record the recovery of a crash state: dm-log-writes above its throw-away layer while it is mounted and reopened.

If the recovered database works on (`rig.guest.programs.laterlife`), its marks are in the same log.

The layer is on brd, which has no write cache. dm-log-writes itself advertises a write cache to the block layer, so
FLUSH and FUA reach it and are logged. The code checks this. It also checks that the log is complete, that is, has as
many bytes as were written to the layer. Between log and layer is a device whose block trace says when requests were
submitted (`rig.faults.log.submissions`). It is dm-log-writes too, though nobody reads its log: any other target there
would have no write cache either, and the block layer strips FLUSH and FUA before it traces requests to such a device.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rig.filesystems.fiemap import extents
from rig.guest.devices import blocktrace, disks
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import log_requests
from rig.guest.site import LOG

_TRACED = "traced"
# The format is described in `rig.faults.log.log`.
_SUPERBLOCK = struct.Struct("<QQQI")
_HEADER = struct.Struct("<QQQQ")
_DISCARD = 4


@dataclass
class RecordedNode:
    """A node to be written to; the log and the block trace of its requests are filled in at the end."""

    node: str = ""
    log: bytearray = field(default_factory=bytearray)
    trace: bytearray = field(default_factory=bytearray)


@contextmanager
def record(mapper: DeviceMapper, device: str, log_disks: tuple[str, str], sector_count: int) -> Iterator[RecordedNode]:
    """Yield a node above a device; requests to it are recorded until the end of the block.

    Raise RuntimeError if the recording is void: flushes would not be logged, the log is full, or something was written
    to the layer that is not in the log.
    """
    made = RecordedNode()
    log_disk, unread_disk = log_disks
    before = disks.written_bytes(device)
    with (
        log_requests(mapper, _TRACED, device, unread_disk, sector_count=sector_count) as below,
        blocktrace.trace(below) as made.trace,
        log_requests(mapper, LOG, below, log_disk, sector_count=sector_count) as made.node,
    ):
        yield made
    made.log += content(log_disk)
    reached = disks.written_bytes(device) - before
    known = sum(length for _, length in written_ranges(made.log))
    if reached != known:
        raise RuntimeError(f"{reached} bytes were written during a recovery, and its log has {known}")


def pack(part: bytes | bytearray) -> str:
    """Compress a log or a trace, and return it as text."""
    return base64.b64encode(zlib.compress(part, 1)).decode()


def places(directory: str) -> list[tuple[int, int]]:
    """Return where the files below a directory are on its device: (offset, length) in bytes, sorted."""
    ranges = []
    for folder, _, names in os.walk(directory):
        for name in names:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                ranges += [(extent.device_offset, extent.length) for extent in extents(file) if extent.is_on_device]
            finally:
                os.close(file)
    return sorted(ranges)


def content(log_disk: str) -> bytes:
    """Return a finished log up to its last entry; past that, the disk holds the remains of an older, longer log."""
    chunks = disks.chunks_of(log_disk)
    log = bytearray(next(chunks))
    _, _, entry_count, sector_bytes = _SUPERBLOCK.unpack_from(log)
    end = sector_bytes
    for _ in range(entry_count):
        while len(log) < end + _HEADER.size:
            log += next(chunks)
        _, payload_sectors, flags, _ = _HEADER.unpack_from(log, end)
        end += sector_bytes * (1 + (0 if flags & _DISCARD else payload_sectors))
    while len(log) < end:
        log += next(chunks)
    return bytes(log[:end])


def written_ranges(log: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length on the device of each write in a log, in bytes."""
    _, _, entry_count, sector_bytes = _SUPERBLOCK.unpack_from(log)
    end = sector_bytes
    for _ in range(entry_count):
        sector, payload_sectors, flags, _ = _HEADER.unpack_from(log, end)
        end += sector_bytes
        if not flags & _DISCARD and payload_sectors:
            yield sector * sector_bytes, payload_sectors * sector_bytes
            end += payload_sectors * sector_bytes
