"""The attribute C of files and directories (`chattr +C`): no copy on write, and in Btrfs no checksums of data.

A directory hands it on to what is made in it; see ioctl_iflags(2).
"""

from __future__ import annotations

import array
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_NOCOW_FL of include/uapi/linux/fs.h, where a long has 8 bytes.
_GETFLAGS, _SETFLAGS, _NOCOW = 0x80086601, 0x40086602, 0x00800000
NOCOW = "C"
# What lsattr shows in place of an attribute that is not set.
PLAIN = "-"


def set_nocow(directory: str) -> None:
    """Give a directory the attribute; raise OSError."""
    _with_flags(directory, _SETFLAGS, _NOCOW)


def below(directory: str) -> str:
    """Return what a directory and everything below it have: `C`, `-`, or both, separated by a comma."""
    return ",".join(sorted({NOCOW if _with_flags(path, _GETFLAGS) & _NOCOW else PLAIN for path in _paths(directory)}))


def _paths(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        yield folder
        yield from (str(path) for name in names if (path := Path(folder, name)).is_file())


def _with_flags(path: str, request: int, value: int = 0) -> int:
    flags = array.array("l", [value])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, request, flags)
    finally:
        os.close(descriptor)
    return flags[0]
