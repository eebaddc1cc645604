"""File content: what an engine can see of a directory once the file system has recovered, as one digest.

It covers the relative path, kind and mode of everything below the directory, the size and bytes of each file, and the
target of each symbolic link. It leaves out what an engine has no reason to read: times, owners, inode numbers, sizes
of directories, extended attributes, where on the disk the bytes are, and the folder of a noisy neighbour.

The digest is MD5, which under emulation is five times as fast as BLAKE2 or SHA-2. Nobody attacks it, and 128 bits are
enough to tell contents apart that differ by chance.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from hashlib import md5

from rig.guest.devices import neighbour

_READ_BYTES = 1 << 20
# A page that cannot be read is content too; ranges are at least that fine.
_PAGE_BYTES = 4096
_UNREADABLE = b"unreadable"
_LENGTH = struct.Struct("<Q")
_MODE = struct.Struct("<L")

_buffer = bytearray(_READ_BYTES)


def digest(directory: str) -> str:
    """Return the digest of what is below a directory: 32 hexadecimal digits.

    It is empty if something cannot be listed or opened, or a read fails with an error other than EIO: the file system
    is then damaged, and its content says nothing about what an engine sees.
    """
    try:
        return _digest(directory)
    except OSError:
        return ""


def _digest(directory: str) -> str:
    state = md5(usedforsecurity=False)
    for path, status in _below(directory):
        name = os.fsencode(path[len(directory) + 1 :])
        state.update(_LENGTH.pack(len(name)) + name + _MODE.pack(status.st_mode))
        if stat.S_ISREG(status.st_mode):
            state.update(_LENGTH.pack(status.st_size))
            _add_file(path, state.update)
        elif stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(path))
            state.update(_LENGTH.pack(len(target)) + target)
    return state.hexdigest()


def _below(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        own = (entry for entry in entries if entry.name != neighbour.FOLDER)
        listed = sorted(own, key=lambda entry: os.fsencode(entry.name))
    for entry in listed:
        status = entry.stat(follow_symlinks=False)
        yield entry.path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _below(entry.path)


def _add_file(path: str, add: Callable[[bytes | memoryview], None]) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        offset = 0
        while size := _add_part(file, offset, _READ_BYTES, add):
            offset += size
    finally:
        os.close(file)


def _add_part(file: int, offset: int, length: int, add: Callable[[bytes | memoryview], None]) -> int:
    """Add a part of a file, page by page where the disk refuses to read; return how many bytes were covered."""
    view = memoryview(_buffer)[:length]
    try:
        size = os.preadv(file, [view], offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        if length > _PAGE_BYTES:
            return sum(_add_part(file, offset + begin, _PAGE_BYTES, add) for begin in range(0, length, _PAGE_BYTES))
        add(_UNREADABLE)
        return _PAGE_BYTES
    add(view[:size])
    return size
