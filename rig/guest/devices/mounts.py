"""mount(2) and umount2(2) from this process, with options."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

MOUNT_POINT = "/mnt"
_libc = ctypes.CDLL(None, use_errno=True)


def mount(device: str, filesystem: str, options: str = "", point: str = MOUNT_POINT) -> None:
    """Mount; raise OSError with the kernel's errno."""
    if _libc.mount(device.encode(), point.encode(), filesystem.encode(), 0, options.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {filesystem}: {os.strerror(number)}")


def unmount(point: str = MOUNT_POINT) -> None:
    """Unmount; raise OSError with the kernel's errno."""
    if _libc.umount2(point.encode(), 0):
        number = ctypes.get_errno()
        raise OSError(number, f"umount: {os.strerror(number)}")


@contextmanager
def mounted(device: str, filesystem: str, options: str = "") -> Iterator[str]:
    """Mount for the length of a block; the value is the mount point."""
    mount(device, filesystem, options)
    try:
        yield MOUNT_POINT
    finally:
        unmount()


def joined(*options: str) -> str:
    """Return mount options in one word; empty ones are left out."""
    return ",".join(option for option in options if option)
