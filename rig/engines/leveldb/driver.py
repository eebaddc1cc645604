"""LevelDB through Debian's `python3-plyvel`: a transaction is one WriteBatch, a space is a prefix of keys.

The engine's own check is to read everything with checksums verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rig.engines.keyvalue import Changes, KeyValueDatabase

# The binding's exceptions for which the disk or its content may be the reason.
_FAULTS = frozenset({"IOError", "CorruptionError"})
_TABLES = (".ldb", ".sst")


class LevelDatabase(KeyValueDatabase):
    """An open database."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        import plyvel

        self._given = settings
        self._version = plyvel.__leveldb_version__
        self._binding = plyvel.__version__
        self._database: Any = plyvel.DB(
            directory,
            create_if_missing=True,
            paranoid_checks=settings["checks"] == "paranoid",
            write_buffer_size=int(settings["write_buffer_size"]),
        )

    def value(self, space: str, key: bytes) -> bytes | None:
        """Return the value under a key, or None."""
        value: bytes | None = self._database.get(_prefix(space) + key, verify_checksums=True)
        return value

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values under a prefix."""
        prefix = _prefix(space)
        with self._database.iterator(prefix=prefix, verify_checksums=True) as iterator:
            for key, value in iterator:
                yield key[len(prefix) :], value

    def write(self, changes: Changes, *, is_undone: bool = False) -> None:
        """Write a batch; a transaction that is undone is never begun."""
        assert not is_undone, "a transaction that is undone is left out, see the skills of the spec"
        with self._database.write_batch(sync=self._given["writes"] == "sync") as batch:
            for (space, key), value in changes.items():
                if value is None:
                    batch.delete(_prefix(space) + key)
                else:
                    batch.put(_prefix(space) + key, value)

    def own_problems(self) -> list[str]:
        """Read everything, which raises on a wrong checksum."""
        with self._database.iterator(verify_checksums=True) as iterator:
            for _ in iterator:
                pass
        return []

    def settings(self) -> dict[str, str]:
        """Return versions read from the library, and the settings as given: LevelDB does not show them."""
        names = ("checks", "writes", "write_buffer_size")
        return {**{name: self._given[name] for name in names}, "version": self._version, "binding": self._binding}

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log whose content moves into tables: always."""
        return True

    def checkpoint(self) -> None:
        """Write what is in memory and in the log to a table, and compact all tables.

        LevelDB's call returns no error: the next write raises what went wrong.
        """
        self._database.compact_range()

    def shrink_log(self) -> None:
        """Begin a new log; that is a part of a checkpoint."""
        self.checkpoint()

    def close(self) -> None:
        """Close the database, after its background thread has ended."""
        self._database.close()


def open_database(directory: str, settings: Mapping[str, str]) -> LevelDatabase:
    """Open the database in a directory, or make a new one."""
    return LevelDatabase(directory, settings)


def is_fault(error: Exception) -> bool:
    """Return whether an error of LevelDB may be due to the disk or its content."""
    kind = type(error)
    return kind.__module__.partition(".")[0] == "plyvel" and kind.__name__ in _FAULTS


def is_mapped(name: str) -> bool:
    """Return whether LevelDB maps a file of that name into memory."""
    return name.endswith(_TABLES)


def _prefix(space: str) -> bytes:
    return space.encode() + b"\0"
