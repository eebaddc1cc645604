"""RocksDB through `rocksdict`: a transaction is one WriteBatch, each space a column family.

The binding has no function for some options, among them `manual_wal_flush`. RocksDB itself reads all options from an
options file, so every option is given that way. It also writes an options file into each database, from which the
options are read back. The engine's own check is to read everything with checksums verified.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rig.engines.keyvalue import Changes, KeyValueDatabase
from rig.engines.rocksdb import options
from rig.workloads.operations import Operation, Table

_BACKGROUND_ERRORS = "rocksdb.background-errors"
_DEFAULT_FAMILY = "default"
# The binding raises Exception for everything, with RocksDB's words: `Status::ToString` in util/status.cc.
_FAULTS = ("IO error: ", "Corruption: ")


class RocksDatabase(KeyValueDatabase):
    """An open database."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        import rocksdict

        self._rocksdict = rocksdict
        self._directory = Path(directory)
        self._tuning = {name: value for name, value in settings.items() if name != options.SETTING}
        self._writes, wanted = options.mode(settings[options.SETTING])
        self._options = _load_options(options.text({**self._tuning, **wanted}))
        self._write_options: Any = rocksdict.WriteOptions()
        self._write_options.sync = self._writes.sync
        self._write_options.disable_wal = self._writes.disable_wal
        self._open()

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them; if the rows stay in memory, close and reopen, which writes them out."""
        super().create(tables, rows)
        if self._writes.stays_in_memory:
            self.leave()
            self._open()

    def value(self, space: str, key: bytes) -> bytes | None:
        """Return the value under a key, or None."""
        value: bytes | None = self._spaces[space].get(key) if space in self._spaces else None
        return value

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of a column family."""
        if space not in self._spaces:
            return
        # Not the binding's items(), which ends silently at data that it cannot read.
        iterator = self._spaces[space].iter()
        iterator.seek_to_first()
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        iterator.status()

    def write(self, changes: Changes, *, is_undone: bool = False) -> None:
        """Write a batch; a transaction that is undone is never begun."""
        assert not is_undone, "a transaction that is undone is left out, see the skills of the spec"
        for space in sorted({space for space, _ in changes} - set(self._spaces)):
            self._spaces[space] = self._database.create_column_family(space, self._options[1])
        handles = {space: self._database.get_column_family_handle(space) for space, _ in changes}
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for (space, key), value in changes.items():
            if value is None:
                batch.delete(key, handles[space])
            else:
                batch.put(key, value, handles[space])
        self._database.write(batch, self._write_options)
        if self._writes.flushes_wal:
            self._database.flush_wal(sync=True)

    def own_problems(self) -> list[str]:
        """Read everything, which raises on a wrong checksum, and ask for errors of background threads."""
        for space in self._spaces:
            for _ in self.items(space):
                pass
        count = self._database.property_int_value(_BACKGROUND_ERRORS)
        return [f"{count} errors in the background"] if count else []

    def settings(self) -> dict[str, str]:
        """Return version and options from the file that RocksDB wrote, and the write options from the binding."""
        newest = max(self._directory.glob("OPTIONS-*[0-9]"), key=lambda path: int(path.name.partition("-")[2]))
        has = options.parse(newest.read_text())
        writes = replace(self._writes, sync=self._write_options.sync, disable_wal=self._write_options.disable_wal)
        return {
            options.SETTING: options.word(has, writes),
            **{name: has.get(name, "") for name in (*self._tuning, *options.READ_BACK)},
            "version": has["rocksdb_version"],
            "binding": version("rocksdict"),
        }

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log or memory whose content moves into tables: always."""
        return True

    def checkpoint(self) -> None:
        """Write the content of memory, and so of the log, to tables."""
        for space in self._spaces.values():
            space.flush(wait=True)

    def shrink_log(self) -> None:
        """Begin a new log; that is a part of a checkpoint."""
        self.checkpoint()

    def close(self) -> None:
        """Close the database with its log written out and synced."""
        try:
            self._database.flush_wal(sync=True)
        finally:
            self.leave()

    def leave(self) -> None:
        """Close the database as RocksDB itself does."""
        # This first writes out data that is only in memory; with atomic_flush, all column families at once. The binding
        # alone would write them out one after the other as it releases them, which breaks atomic_flush (rocksdict
        # 0.3.29).
        self._database.cancel_all_background(wait=True)
        self._spaces.clear()
        del self._database

    def _open(self) -> None:
        of_database, of_family = self._options
        families = dict.fromkeys(self._families(), of_family)
        self._database: Any = self._rocksdict.Rdict(str(self._directory), of_database, families)
        self._spaces = {name: self._database.get_column_family(name) for name in families}

    def _families(self) -> list[str]:
        # Without the file CURRENT RocksDB finds no database, and makes a new one.
        if not (self._directory / "CURRENT").exists():
            return [_DEFAULT_FAMILY]
        return [str(name) for name in self._rocksdict.Rdict.list_cf(str(self._directory), self._options[0])]


def open_database(directory: str, settings: Mapping[str, str]) -> RocksDatabase:
    """Open the database in a directory, or make a new one."""
    return RocksDatabase(directory, settings)


def is_fault(error: Exception) -> bool:
    """Return whether an error of RocksDB may be due to the disk or its content."""
    return type(error) is Exception and str(error).startswith(_FAULTS)


def is_mapped(name: str) -> bool:  # noqa: ARG001 - no file is
    """Return whether RocksDB maps a file of that name into memory."""
    return False


def _load_options(text: str) -> tuple[Any, Any]:
    """Return the options of the database and of its column families that RocksDB reads from a file with this text."""
    import rocksdict

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "OPTIONS-000001").write_text(text)
        of_database, of_families = rocksdict.Options.load_latest(folder)
    return of_database, of_families[_DEFAULT_FAMILY]
