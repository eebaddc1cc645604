"""LMDB through Debian's `python3-lmdb`; each space is a named database.

Every commit is one write transaction. The engine has no check of its own. Copying with compaction comes nearest: it
walks all pages in use and counts the free ones, so it notices a page that is neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rig.engines.keyvalue import Changes, KeyValueDatabase

_SPACES_MAX = 8
# Word of the setting -> the binding's options for the flags of lmdb.h.
_OPTIONS: Mapping[str, Mapping[str, bool]] = {
    "default": {},
    "nometasync": {"metasync": False},
    "nosync": {"sync": False},
    "writemap": {"writemap": True},
    "mapasync": {"writemap": True, "map_async": True},
}
# The binding's exceptions for which the disk or its content may be the reason; `Error` itself is for an errno without a
# name of its own, such as EIO.
_FAULTS = frozenset({
    "Error", "DiskError", "PanicError", "CorruptedError", "PageNotFoundError", "InvalidError", "VersionMismatchError",
})  # fmt: skip
_FILES = frozenset({"data.mdb", "lock.mdb"})
_DEFAULTS = {"sync": True, "metasync": True, "writemap": False, "map_async": False}


class LmdbDatabase(KeyValueDatabase):
    """An open environment."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        import lmdb

        self._lmdb = lmdb
        self._environment: Any = lmdb.open(
            directory, map_size=int(settings["map_size"]), max_dbs=_SPACES_MAX, **_OPTIONS[settings["flags"]]
        )
        self._spaces: dict[str, Any] = {}

    def value(self, space: str, key: bytes) -> bytes | None:
        """Return the value under a key, or None."""
        with self._environment.begin() as transaction:
            value: bytes | None = transaction.get(key, db=self._space(space))
            return value

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of a named database."""
        try:
            database = self._space(space)
        except self._lmdb.NotFoundError:
            return
        with self._environment.begin() as transaction, transaction.cursor(db=database) as cursor:
            yield from cursor

    def write(self, changes: Changes, *, is_undone: bool = False) -> None:
        """Carry out changes in a write transaction, and commit or abort it."""
        # A rollback closes the handles that its transaction opened, so existing databases are opened before it.
        for space in {space for space, _ in changes}:
            with suppress(self._lmdb.NotFoundError):
                self._space(space)
        transaction = self._environment.begin(write=True)
        try:
            for (space, key), value in changes.items():
                if value is None:
                    transaction.delete(key, db=self._space(space, transaction))
                else:
                    transaction.put(key, value, db=self._space(space, transaction))
        except BaseException:
            transaction.abort()
            raise
        if is_undone:
            transaction.abort()
        else:
            transaction.commit()

    def own_problems(self) -> list[str]:
        """Return the complaints of a copy with compaction, and named databases whose entry count is wrong."""
        with open(os.devnull, "wb") as nowhere:
            try:
                self._environment.copyfd(nowhere.fileno(), compact=True)
            except self._lmdb.Error as error:
                return [f"copy with compaction: {error}"]
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            names = [name.decode() for name, _ in cursor]
        problems = []
        for name in names:
            database = self._space(name)
            with self._environment.begin() as transaction, transaction.cursor(db=database) as cursor:
                counted, has = sum(1 for _ in cursor), transaction.stat(database)["entries"]
            if counted != has:
                problems.append(f"{name} has {counted} entries and counts {has}")
        return problems

    def settings(self) -> dict[str, str]:
        """Return flags, sizes and versions, read back from the environment."""
        flags = self._environment.flags()
        has = {name: bool(flags[name]) for name in _DEFAULTS}
        words = [word for word, options in _OPTIONS.items() if has == {**_DEFAULTS, **options}]
        return {
            "flags": words[0] if words else str(has),
            "map_size": str(self._environment.info()["map_size"]),
            "page_size": str(self._environment.stat()["psize"]),
            "version": ".".join(map(str, self._lmdb.version(subpatch=False))),
            "binding": self._lmdb.__version__,
        }

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log: never."""
        return False

    def checkpoint(self) -> None:
        """Do nothing: there is no log."""

    def shrink_log(self) -> None:
        """Do nothing: there is no log."""

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _space(self, name: str, transaction: Any = None) -> Any:
        if name not in self._spaces:
            is_made = transaction is not None
            self._spaces[name] = self._environment.open_db(name.encode(), txn=transaction, create=is_made)
        return self._spaces[name]


def open_database(directory: str, settings: Mapping[str, str]) -> LmdbDatabase:
    """Open the environment in a directory, or make a new one."""
    return LmdbDatabase(directory, settings)


def is_fault(error: Exception) -> bool:
    """Return whether an error of LMDB may be due to the disk or its content."""
    kind = type(error)
    return kind.__module__.partition(".")[0] == "lmdb" and kind.__name__ in _FAULTS


def is_mapped(name: str) -> bool:
    """Return whether LMDB maps a file of that name into memory."""
    return name in _FILES
