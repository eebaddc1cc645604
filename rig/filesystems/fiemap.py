"""Where a file is on its device, as the file system reports it: FIEMAP, see include/uapi/linux/fiemap.h."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

# _IOWR('f', 11, struct fiemap).
_FIEMAP = 0xC020660B
_HEADER = struct.Struct("<QQIIII")
_EXTENT = struct.Struct("<QQQ16xI12x")
# Extents per call.
_EXTENTS_MAX = 512
_SYNC = 1
_LAST = 1
# UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED, DATA_INLINE.
_NOWHERE = 0x2 | 0x4 | 0x8 | 0x80 | 0x200


@dataclass(frozen=True, order=True)
class FileExtent:
    """A part of a file; offsets and length in bytes."""

    file_offset: int
    device_offset: int
    length: int
    flags: int = 0

    @property
    def is_on_device(self) -> bool:
        """Whether the device holds the bytes verbatim at the offset."""
        return not self.flags & _NOWHERE


def extents(descriptor: int, *, synced: bool = False) -> Iterator[FileExtent]:
    """Yield the extents of an open file in order; `synced` writes the file out first. Raise OSError."""
    offset = 0
    while True:
        request = bytearray(_HEADER.size + _EXTENTS_MAX * _EXTENT.size)
        _HEADER.pack_into(request, 0, offset, (1 << 64) - 1 - offset, _SYNC if synced else 0, 0, _EXTENTS_MAX, 0)
        fcntl.ioctl(descriptor, _FIEMAP, request)
        count = _HEADER.unpack_from(request)[3]
        mapped = [
            FileExtent(*_EXTENT.unpack_from(request, _HEADER.size + index * _EXTENT.size)) for index in range(count)
        ]
        yield from mapped
        if not mapped or mapped[-1].flags & _LAST:
            return
        offset = mapped[-1].file_offset + mapped[-1].length
