"""The manifest names a log; a log has a line for each transaction: all rows after it. The last complete line counts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from brittle import Brittle, Rows
from rig.workloads.operations import Operation, Table

_LOG = "rows.log"
# Transactions until the first checkpoint.
_CHECKPOINT_AFTER = 6


class Logged(Brittle):
    """An open log."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._manifest = Path(directory) / "MANIFEST"
        path = Path(directory) / _LOG
        is_known = self._manifest.exists() and self._manifest.read_text() == _LOG
        if not is_known:
            path.unlink(missing_ok=True)
            self._manifest.write_text(_LOG)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._rows = Rows(_last(path.read_bytes()))
        self._commit_count = 0

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Write the first line."""
        self._rows.make(tables)
        self.commit(rows)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Append a line; with sync=always return when it is durable."""
        self._rows.apply(operations)
        packed = self._rows.packed
        os.write(self._file, b"%08x %s\n" % (zlib.crc32(packed), packed))
        self._commit_count += 1
        self._sync()
        if self._is_synced and self._commit_count == _CHECKPOINT_AFTER:
            with self._manifest.open("rb") as manifest:
                os.fsync(manifest.fileno())


def open_database(directory: str, settings: Mapping[str, str]) -> Logged:
    """Open the log that the manifest names, or make both anew."""
    return Logged(directory, settings)


def _last(log: bytes) -> bytes:
    found = b"{}"
    for line in log.splitlines(keepends=True):
        checksum, _, packed = line.partition(b" ")
        if not packed.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(packed[:-1]):
            break
        found = packed[:-1]
    return found
