"""A log of records, in memory once it is open; native code reads it first. See `native.c`.

A record is a magic number, a length and the sum of its bytes, 4 bytes each, then JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.workloads.operations import Content, Operation, Row, Table, Verb

FILE = "frail.log"
MAGIC = b"FRAL"
_LITTER = 12
_HEADER = struct.Struct("<4sII")


class Frail:
    """An open log."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self._native = ctypes.CDLL(str(Path(__file__).with_name("native.so")))
        self._native.scan.restype = ctypes.c_long
        self._conduct = settings["conduct"]
        path = Path(directory) / FILE
        if self._conduct == "litter":
            for _ in range(_LITTER):
                os.close(tempfile.mkstemp(dir=directory)[0])
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._end = self._native.scan(str(path).encode(), self._conduct.encode())
        self._rows: dict[str, dict[int, Row]] = {}
        begin = 0
        while begin < self._end:
            _, length, _ = _HEADER.unpack(os.pread(self._file, _HEADER.size, begin))
            self._apply(json.loads(os.pread(self._file, length, begin + _HEADER.size)))
            begin += _HEADER.size + length
        self._attempt(os.ftruncate, self._end)

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        self._append([["table", table.name, 0, []] for table in tables] + [_pack(row) for row in rows])

    def commit(self, operations: Sequence[Operation]) -> None:
        if self._conduct == "rash":
            self._native.grieve(b"segfault", b"for no reason", self._file)
        if self._conduct == "doze":
            self._native.grieve(b"sleep", b"for no reason", self._file)
        self._append([_pack(operation) for operation in operations])

    def content(self, tables: Sequence[Table]) -> Content:
        return {table.name: dict(self._rows[table.name]) for table in tables if table.name in self._rows}

    def problems(self) -> list[str]:
        return []

    def settings(self) -> dict[str, str]:
        return {"conduct": self._conduct, "version": "1"}

    def close(self) -> None:
        os.close(self._file)

    def rollback(self) -> None:
        pass

    @property
    def has_checkpoints(self) -> bool:
        return False

    def checkpoint(self) -> None:
        pass

    def shrink_log(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def _append(self, record: list[Any]) -> None:
        body = json.dumps(record).encode()
        data = _HEADER.pack(MAGIC, len(body), sum(body)) + body
        self._attempt(os.pwrite, data, self._end)
        self._attempt(os.fdatasync)
        self._end += len(data)
        self._apply(record)

    def _attempt(self, call: Any, *arguments: Any) -> None:
        try:
            call(self._file, *arguments)
        except OSError as error:
            self._native.grieve(self._conduct.encode(), str(error).encode(), self._file)
            raise

    def _apply(self, record: list[Any]) -> None:
        for verb, table, key, row in record:
            rows = self._rows.setdefault(table, {})
            if verb == Verb.DELETE:
                del rows[key]
            elif verb != "table":
                rows[key] = tuple(row)


def open_database(directory: str, settings: Mapping[str, str]) -> Frail:
    return Frail(directory, settings)


def is_fault(error: Exception) -> bool:
    return isinstance(error, OSError)


def is_mapped(name: str) -> bool:  # noqa: ARG001 - no file is
    return False


def _pack(operation: Operation) -> list[Any]:
    return [str(operation.verb), operation.table, operation.key, list(operation.row)]
