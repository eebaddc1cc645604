"""The append-only log: a record for each transaction, and the content in memory.

A record is a length and a checksum, 4 bytes each, then JSON. Opening reads the records up to the first incomplete one
and truncates the file there.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.workloads.operations import Content, Operation, Row, Table, Verb

_FILE = "append.log"
_HEADER = struct.Struct("<II")


class AppendLog:
    """An open log."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self._sync = settings["sync"]
        self._directory = directory
        self._file = os.open(Path(directory) / _FILE, os.O_RDWR | os.O_CREAT, 0o644)
        self._rows: dict[str, dict[int, Row]] = {}
        self._end = 0
        for record, size in _records(_whole(self._file)):
            self._apply(record)
            self._end += size
        os.ftruncate(self._file, self._end)

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Write the first record, and make the file's name durable with it."""
        self._append([["table", table.name] for table in tables] + [_pack(row) for row in rows])
        if self._sync == "always":
            folder = os.open(self._directory, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Append one record; with sync=always return when it is durable."""
        self._append([_pack(operation) for operation in operations])

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of those of the tables that exist."""
        return {table.name: dict(self._rows[table.name]) for table in tables if table.name in self._rows}

    def problems(self) -> list[str]:
        """Return nothing, because opening the log cuts off everything that fails its checksum."""
        return []

    def settings(self) -> dict[str, str]:
        """Return the setting and the version."""
        return {"sync": self._sync, "version": "0.1.0"}

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, record: list[Any]) -> None:
        body = json.dumps(record).encode()
        data = _HEADER.pack(len(body), zlib.crc32(body)) + body
        os.pwrite(self._file, data, self._end)
        if self._sync == "always":
            os.fdatasync(self._file)
        self._end += len(data)
        self._apply(record)

    def _apply(self, record: list[Any]) -> None:
        for verb, table, *rest in record:
            rows = self._rows.setdefault(table, {})
            if verb == Verb.DELETE:
                del rows[rest[0]]
            elif verb != "table":
                rows[rest[0]] = tuple(rest[1])


def open_database(directory: str, settings: Mapping[str, str]) -> AppendLog:
    """Open the log in a directory, or make a new one."""
    return AppendLog(directory, settings)


def _whole(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


def _records(data: bytes) -> Iterator[tuple[list[Any], int]]:
    """Yield each record and its size, up to the first incomplete one."""
    begin = 0
    while begin + _HEADER.size <= len(data):
        length, checksum = _HEADER.unpack_from(data, begin)
        body = data[begin + _HEADER.size : begin + _HEADER.size + length]
        if not length or len(body) < length or zlib.crc32(body) != checksum:
            return
        yield json.loads(body), _HEADER.size + length
        begin += _HEADER.size + length


def _pack(operation: Operation) -> list[Any]:
    return [str(operation.verb), operation.table, operation.key, list(operation.row)]
