"""The block: a checksum and a length, 4 bytes each, the rows, compressed, and bytes that differ each time.

The file is larger than the block, and its name says where in it the block is: at a multiple of its size on the disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from brittle import Brittle, Rows
from rig.workloads.operations import Operation, Table

BLOCK_BYTES = 1 << 16
_FILE_BYTES = 2 * BLOCK_BYTES
# The ioctl that tells which block of the disk holds a block of a file, and the size of these blocks.
_FIBMAP, _FIBMAP_BYTES = 1, 4096
_HEADER = struct.Struct("<II")


class BlockFile(Brittle):
    """An open block."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._directory = directory
        # A new file gets its name when it has a block.
        self._offset = -1
        for path in Path(directory).glob("block-*"):
            self._offset = int(path.name.partition("-")[2])
            self._rows = Rows(_unpack(path.read_bytes()[self._offset :][:BLOCK_BYTES]))
            self._file = os.open(path, os.O_RDWR)

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Make the file as large as it will ever be, then write the first block, then give it its name."""
        path = Path(self._directory) / "new"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.pwrite(self._file, bytes(_FILE_BYTES), 0)
        os.fsync(self._file)
        self._offset = -_place(self._file) % BLOCK_BYTES
        self._rows.make(tables)
        self.commit(rows)
        path.rename(path.with_name(f"block-{self._offset}"))
        if self._is_synced:
            folder = os.open(self._directory, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Rewrite the block in place."""
        self._rows.apply(operations)
        os.pwrite(self._file, _pack(self._rows.packed), self._offset)
        self._sync()


def open_database(directory: str, settings: Mapping[str, str]) -> BlockFile:
    """Open the block in a directory, or make a new one."""
    return BlockFile(directory, settings)


def _place(file: int) -> int:
    """Return where on the disk a file begins, in bytes; 0 where a file system cannot tell."""
    try:
        return int.from_bytes(fcntl.ioctl(file, _FIBMAP, bytes(4)), "little") * _FIBMAP_BYTES
    except OSError:
        return 0


def _pack(rows: bytes) -> bytes:
    body = zlib.compress(rows)
    rest = BLOCK_BYTES - _HEADER.size - len(body)
    if rest < 0:
        raise ValueError(f"{len(rows)} bytes of rows do not fit into a block")
    body += hashlib.shake_128(body).digest(rest)
    return _HEADER.pack(zlib.crc32(body), BLOCK_BYTES - _HEADER.size - rest) + body


def _unpack(block: bytes) -> bytes:
    checksum, length = _HEADER.unpack_from(block)
    body = block[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise ValueError("the block does not have its checksum")
    return zlib.decompress(body[:length])
