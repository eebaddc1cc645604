"""The calls that make something durable, by the words of the patterns."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

# include/uapi/linux/fs.h and falloc.h
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def _write_back(file: int) -> None:
    """Write a file back as sync_file_range(2) does, without a flush of the disk."""
    end = os.fstat(file).st_size
    _check(_libc.sync_file_range(file, *map(ctypes.c_long, (0, end)), _WAIT_BEFORE | _WRITE | _WAIT_AFTER))


def _nothing(_: int) -> None:
    pass


# The calls after a write to a file.
AFTER: Mapping[str, Callable[[int], None]] = {
    "none": _nothing, "range": _write_back, "fdatasync": os.fdatasync, "fsync": os.fsync, "odsync": _nothing,
}  # fmt: skip
# The flags with which a file is opened for such a call.
FLAGS: Mapping[str, int] = {"odsync": os.O_DSYNC}


def punch(file: int, offset: int, length: int) -> None:
    """Make a hole in a file, which keeps its size."""
    _check(_libc.fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)))


def sync_directory(directory: str) -> None:
    """Make the entries of a directory durable."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def new_file(path: str, data: bytes) -> None:
    """Make a file, without making any of it durable."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        whole(os.write(file, data), data)
    finally:
        os.close(file)


def durable_file(path: str, data: bytes) -> None:
    """Make a file; make its content and its name durable."""
    new_file(path, data)
    sync_file(path)
    sync_directory(os.path.dirname(path))


def sync_file(path: str) -> None:
    """Make a file durable, but not its name."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def content(path: str) -> bytes:
    """Return the content of a file; empty if the file does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def whole(count: int, data: bytes) -> None:
    """Raise OSError unless all was written."""
    if count != len(data):
        raise OSError(f"{count} of {len(data)} bytes were written")


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
