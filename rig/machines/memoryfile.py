"""Files in memory that a machine inherits; they have no name. A disk is one of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_COPY_BYTES = 1 << 24


@contextmanager
def memory_file(name: str, content: bytes = b"", *, size_bytes: int = 0) -> Iterator[BinaryIO]:
    """Hold a file of at least `size_bytes` for the length of a block; it vanishes when the last process closes it."""
    with open(os.memfd_create(f"rig-{name}"), "r+b", buffering=0) as file:
        file.write(content)
        file.truncate(max(size_bytes, len(content)))
        yield file


def by_descriptor(file: BinaryIO) -> Path:
    """Return a path that reopens a file, in this process or in one that inherits the descriptor."""
    return Path(f"/proc/self/fd/{file.fileno()}")


def copy_into(disk: BinaryIO, path: Path) -> None:
    """Replace the content of a file in memory by a file's, which may be shorter; holes stay holes."""
    size_bytes = os.fstat(disk.fileno()).st_size
    disk.truncate(0)
    disk.truncate(size_bytes)
    for offset, part in stored_parts(path):
        os.pwrite(disk.fileno(), part, offset)


def stored_parts(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of a sparse file, without its holes."""
    with open(path, "rb", buffering=0) as source:
        for begin, end in data_ranges(source):
            for offset in range(begin, end, _COPY_BYTES):
                yield offset, os.pread(source.fileno(), min(_COPY_BYTES, end - offset), offset)


def data_ranges(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each part of a sparse file that holds data."""
    end = 0
    while True:
        try:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no more data
                return
            raise
        end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
        yield begin, end
