"""Connections to a SQLite that the user supplied, with only the functions that `rig.engines.sqlite` uses.

A library is one file in `FOLDER`. The prefix of its name tells its kind: `so-...` is a shared library that exports
SQLite's C functions, called here through ctypes; `apsw-...` is the extension module of an APSW wheel, which contains
SQLite and exports only the module. The rest of the name is the digest of the file, so the name read back from the
opened file says which build was used.

Python's own driver needs functions that old releases lack; this one needs only functions of SQLite 3.7.15. It prepares
each statement again, so virtual times can be compared only among libraries of one kind.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, Protocol

from rig.engines import builds

FOLDER = Path(builds.FOLDER)
SHARED, APSW = "so-", "apsw-"
# C function -> its result and arguments; the table has all functions that are called below.
_P, _I, _B = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sqlite3_open_v2": (_I, (_B, _P, _I, _B)),
    "sqlite3_close": (_I, (_P,)),
    "sqlite3_errmsg": (_B, (_P,)),
    "sqlite3_extended_errcode": (_I, (_P,)),
    "sqlite3_get_autocommit": (_I, (_P,)),
    "sqlite3_busy_timeout": (_I, (_P, _I)),
    "sqlite3_prepare_v2": (_I, (_P, _P, _I, _P, _P)),
    "sqlite3_step": (_I, (_P,)),
    "sqlite3_finalize": (_I, (_P,)),
    "sqlite3_bind_parameter_count": (_I, (_P,)),
    "sqlite3_bind_null": (_I, (_P, _I)),
    "sqlite3_bind_int64": (_I, (_P, _I, ctypes.c_int64)),
    "sqlite3_bind_double": (_I, (_P, _I, ctypes.c_double)),
    "sqlite3_bind_text": (_I, (_P, _I, _B, _I, _P)),
    "sqlite3_bind_blob": (_I, (_P, _I, _B, _I, _P)),
    "sqlite3_column_count": (_I, (_P,)),
    "sqlite3_column_type": (_I, (_P, _I)),
    "sqlite3_column_int64": (ctypes.c_int64, (_P, _I)),
    "sqlite3_column_double": (ctypes.c_double, (_P, _I)),
    "sqlite3_column_text": (_P, (_P, _I)),
    "sqlite3_column_blob": (_P, (_P, _I)),
    "sqlite3_column_bytes": (_I, (_P, _I)),
}
_OK, _ROW, _DONE = 0, 100, 101
_READWRITE_CREATE = 2 | 4
_INTEGER, _FLOAT, _TEXT, _BLOB = 1, 2, 3, 4
# SQLITE_TRANSIENT: the function copies the value before it returns.
_TRANSIENT = -1
# The default of Python's own driver.
_BUSY_LIMIT_MS = 5000

Value = int | float | str | bytes | None


class LibraryError(Exception):
    """SQLite's own message, with its extended result code in the attribute that Python's own driver uses."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(f"{message} (code {code})" if code else message)
        self.sqlite_errorcode = code


class Rows(Protocol):
    """The rows of a statement."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""

    def fetchall(self) -> list[Any]:
        """Return all rows."""


class Connection(Protocol):
    """What the engine needs of a connection; connections of Python's driver and of APSW already satisfy this."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Carry out one statement and return its rows."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def close(self) -> None:
        """Close."""


def error_code(error: Exception) -> int:
    """Return SQLite's primary result code from an error of any driver; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0) or getattr(error, "result", 0)) & 0xFF


def connect(path: str, library: str, folder: Path | None = None) -> Connection:
    """Open a database in autocommit mode with a library in `folder` (default: `FOLDER`); raise its driver's errors."""
    file = str((folder or FOLDER) / library)
    if library.startswith(APSW):
        module = _module(file)
        connection = module.Connection(path)
        connection.set_busy_timeout(_BUSY_LIMIT_MS)
        return connection  # type: ignore[no-any-return] # the module is found at run time
    return _CtypesConnection(_functions(file), path)


def names(folder: Path | None = None) -> list[str]:
    """Return the names of the libraries in `folder`, by default the libraries delivered to the guest."""
    own = folder or FOLDER
    return sorted(path.name for path in own.iterdir()) if own.is_dir() else []


@cache
def digest(library: str, folder: Path | None = None) -> str:
    """Return the name that follows from the content of a library's file; it differs if the file was mixed up."""
    kind = APSW if library.startswith(APSW) else SHARED
    return name(kind, ((folder or FOLDER) / library).read_bytes())


def name(kind: str, content: bytes) -> str:
    """Return the name of a library of this kind and content."""
    return kind + hashlib.blake2b(content, digest_size=8).hexdigest()


@cache
def _module(file: str) -> Any:
    loader = ExtensionFileLoader("apsw", file)
    spec = importlib.util.spec_from_loader("apsw", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def _functions(file: str) -> ctypes.CDLL:
    library = ctypes.CDLL(file, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    for function, (result, arguments) in FUNCTIONS.items():
        entry = getattr(library, function)
        entry.restype, entry.argtypes = result, arguments
    return library


class _FetchedRows(list[tuple[Value, ...]]):
    def fetchall(self) -> list[Any]:
        return self


class _CtypesConnection:
    """A connection through the C functions of a shared library."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        code = library.sqlite3_open_v2(os.fsencode(path), ctypes.byref(self._handle), _READWRITE_CREATE, None)
        if code != _OK:
            error = self._error(code)
            library.sqlite3_close(self._handle)
            raise error
        library.sqlite3_busy_timeout(self._handle, _BUSY_LIMIT_MS)

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement to its end and return its rows; raise LibraryError with SQLite's words."""
        statement = self._prepare(sql.encode())
        try:
            count = self._library.sqlite3_bind_parameter_count(statement)
            if count != len(parameters):
                raise LibraryError(f"{sql!r} has {count} parameters, {len(parameters)} were given")
            for index, value in enumerate(parameters, start=1):
                self._check(self._bind(statement, index, value))
            rows = _FetchedRows()
            while (code := self._library.sqlite3_step(statement)) == _ROW:
                columns = range(self._library.sqlite3_column_count(statement))
                rows.append(tuple(self._column(statement, column) for column in columns))
            if code != _DONE:
                raise self._error(code)
            return rows
        finally:
            # Its result is ignored: it repeats the error of the last step, which was raised above.
            self._library.sqlite3_finalize(statement)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return not self._library.sqlite3_get_autocommit(self._handle)

    def close(self) -> None:
        """Close the connection; every statement has been finalized."""
        if self._handle.value:
            self._check(self._library.sqlite3_close(self._handle))
            self._handle = ctypes.c_void_p()

    def _prepare(self, sql: bytes) -> ctypes.c_void_p:
        if not self._handle.value:
            raise LibraryError("the connection is closed")
        statement = ctypes.c_void_p()
        text = ctypes.create_string_buffer(sql)
        rest = ctypes.c_void_p()
        self._check(
            self._library.sqlite3_prepare_v2(self._handle, text, -1, ctypes.byref(statement), ctypes.byref(rest))
        )
        unread = len(sql) - ((rest.value or 0) - ctypes.addressof(text))
        if not statement.value or sql[len(sql) - unread :].strip():
            self._library.sqlite3_finalize(statement)
            raise LibraryError(f"{sql.decode()!r} is not one statement")
        return statement

    def _bind(self, statement: ctypes.c_void_p, index: int, value: Value) -> int:
        library = self._library
        if value is None:
            code = library.sqlite3_bind_null(statement, index)
        elif isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError(f"{value} does not fit into an INTEGER of SQLite")
            code = library.sqlite3_bind_int64(statement, index, value)
        elif isinstance(value, float):
            code = library.sqlite3_bind_double(statement, index, value)
        elif isinstance(value, str):
            data = value.encode()
            code = library.sqlite3_bind_text(statement, index, data, len(data), _TRANSIENT)
        else:
            code = library.sqlite3_bind_blob(statement, index, value, len(value), _TRANSIENT)
        return int(code)

    def _column(self, statement: ctypes.c_void_p, column: int) -> Value:
        library = self._library
        kind = library.sqlite3_column_type(statement, column)
        if kind == _INTEGER:
            return int(library.sqlite3_column_int64(statement, column))
        if kind == _FLOAT:
            return float(library.sqlite3_column_double(statement, column))
        if kind not in (_TEXT, _BLOB):
            return None
        read = library.sqlite3_column_text if kind == _TEXT else library.sqlite3_column_blob
        # Read the value before its length, because reading a text may convert it.
        place = read(statement, column)
        data = ctypes.string_at(place, library.sqlite3_column_bytes(statement, column)) if place else b""
        return data.decode() if kind == _TEXT else data

    def _check(self, code: int) -> None:
        if code != _OK:
            raise self._error(code)

    def _error(self, code: int) -> LibraryError:
        if not self._handle.value:
            return LibraryError("SQLite could not allocate a connection", code)
        words = self._library.sqlite3_errmsg(self._handle).decode(errors="replace")
        # The extended code belongs to the last failed call, which may not be the caller's.
        extended = self._library.sqlite3_extended_errcode(self._handle)
        return LibraryError(words, extended if extended & 0xFF == code & 0xFF else code)
