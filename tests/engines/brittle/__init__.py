"""Engines for the rig that are weak in one known place, and what they share: their rows, and what they promise.

They are found by their entry points as soon as the folder above this package is in PYTHONPATH.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from rig.workloads.operations import Content, Operation, Row, Table, Verb


class Rows:
    """The content of a database in memory; empty until it has tables."""

    def __init__(self, packed: bytes = b"{}") -> None:
        self._tables: dict[str, dict[int, Row]] = {
            name: {int(key): tuple(row) for key, row in rows.items()} for name, rows in json.loads(packed).items()
        }

    @property
    def packed(self) -> bytes:
        """Return the content as bytes that make the same rows."""
        return json.dumps(self._tables, sort_keys=True).encode()

    def make(self, tables: Sequence[Table]) -> None:
        """Make tables."""
        self._tables |= {table.name: {} for table in tables}

    def apply(self, operations: Sequence[Operation]) -> None:
        """Carry out a transaction."""
        for one in operations:
            if one.verb is Verb.DELETE:
                del self._tables[one.table][one.key]
            else:
                self._tables[one.table][one.key] = one.row

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the tables that exist."""
        return {table.name: dict(self._tables[table.name]) for table in tables if table.name in self._tables}


class Brittle:
    """An open database: its rows, and the file that is synced where the settings say so. Damage is found at opening."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._is_synced = settings["sync"] == "always"
        self._rows = Rows()
        self._file = -1

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the tables that exist."""
        return self._rows.content(tables)

    def problems(self) -> list[str]:
        """Return nothing."""
        return []

    def settings(self) -> dict[str, str]:
        """Return the setting and the version."""
        return {"sync": "always" if self._is_synced else "never", "version": "1"}

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file >= 0:
            os.close(self._file)

    def _sync(self) -> None:
        if self._is_synced:
            os.fdatasync(self._file)
