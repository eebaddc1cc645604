"""What SQLite asks of the operating system, counted inside this process: syncs, writes, locks.

A VFS is put between SQLite and its own `unix` VFS (sqlite.org/vfs.html). It passes every call on and notes it, so the
files and the locks are the real ones. Syncs of a directory and lock calls are seen one layer lower, at the table of
system calls of that VFS. Reads, and changes through a memory map, are left out.

It works on the library that Python's own `sqlite3` uses, if that is a shared library.
"""

from __future__ import annotations

import ctypes
import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rig.analysis.documents.probes.probe import Unmeasurable

_NAME = b"counted"
# sqlite.org/c3ref/c_open_autoproxy.html
_KINDS = {0x100: "database", 0x800: "journal", 0x80000: "wal"}
_IOERR = 10
_LOCKING = (fcntl.F_SETLK, fcntl.F_SETLKW)

_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_Fcntl = CFUNCTYPE(c_int, c_int, c_int, c_void_p)
_OpenDirectory = CFUNCTYPE(c_int, c_char_p, c_void_p)
_SetSystemCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GetSystemCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class _Vfs(ctypes.Structure):
    """The `sqlite3_vfs` of sqlite3.h, version 3."""

    _fields_ = (
        ("version", c_int), ("file_bytes", c_int), ("path_bytes_max", c_int), ("next", c_void_p), ("name", c_char_p),
        ("data", c_void_p), ("open", c_void_p), ("others", c_void_p * 12), ("set_system_call", c_void_p),
        ("get_system_call", c_void_p), ("next_system_call", c_void_p),
    )  # fmt: skip


class _Methods(ctypes.Structure):
    """The `sqlite3_io_methods` of sqlite3.h, version 3."""

    _fields_ = (
        ("version", c_int), ("close", c_void_p), ("read", c_void_p), ("write", c_void_p), ("truncate", c_void_p),
        ("sync", c_void_p), ("others", c_void_p * 13),
    )  # fmt: skip


@dataclass(frozen=True)
class VfsCall:
    """One call: `write`, `truncate`, `sync` or `lock`; which kind of file; where, and how many bytes."""

    what: str
    file: str
    offset_bytes: int = 0
    size_bytes: int = 0


class Calls:
    """The calls since the last `take`."""

    def __init__(self) -> None:
        self.seen: list[VfsCall] = []

    def take(self) -> Taken:
        """Return the calls so far and forget them."""
        taken, self.seen = Taken(tuple(self.seen)), []
        return taken


@dataclass(frozen=True)
class Taken:
    """Calls in their order."""

    calls: tuple[VfsCall, ...]

    def count(self, what: str, file: str = "") -> int:
        """Return how many calls of a kind there were, to one kind of file if given."""
        return sum(call.what == what and (not file or call.file == file) for call in self.calls)

    def bytes_written(self, file: str = "") -> int:
        """Return the bytes of all writes, to one kind of file if given."""
        return sum(call.size_bytes for call in self.calls if call.what == "write" and (not file or call.file == file))


class _Counter:
    """The VFS, registered once in a process; SQLite keeps pointers into it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        plain = library.sqlite3_vfs_find(b"unix")
        if not plain or plain.contents.version < 3:
            raise Unmeasurable("this build of SQLite has no VFS named unix whose calls could be counted")
        self._plain = plain.contents
        self.calls: Calls | None = None
        self._files: dict[int, str] = {}
        self._methods: dict[int, _Methods] = {}
        self._kept: list[Any] = []
        # What was raised inside a call of SQLite's, where Python would only print it.
        self.raised: BaseException | None = None
        self._vfs = _Vfs.from_buffer_copy(self._plain)
        self._vfs.name = _NAME
        self._vfs.open = self._pointer(_Open(self._safe(self._open)))
        if library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0):
            raise Unmeasurable("SQLite takes no further VFS, so its calls cannot be counted")

    @contextmanager
    def system_calls(self, calls: Calls) -> Iterator[None]:
        """Count lock calls and syncs of directories while the block runs."""
        directory = _OpenDirectory(self._get(b"openDirectory"))
        lock = _Fcntl(self._get(b"fcntl"))

        def counted_directory(path: bytes, descriptor: int) -> int:
            calls.seen.append(VfsCall("sync", "directory"))
            return int(directory(path, descriptor))

        def counted_lock(descriptor: int, command: int, argument: int) -> int:
            if command in _LOCKING:
                calls.seen.append(VfsCall("lock", ""))
            return int(lock(descriptor, command, argument))

        replacing = {
            b"openDirectory": _OpenDirectory(self._safe(counted_directory)),
            b"fcntl": _Fcntl(self._safe(counted_lock)),
        }
        self.calls = calls
        try:
            for name, function in replacing.items():
                self._set(name, ctypes.cast(function, c_void_p).value)
            yield
        finally:
            for name in replacing:
                self._set(name, None)
            self.calls = None
            raised, self.raised = self.raised, None
            if raised:
                raise raised

    def _safe(self, function: Callable[..., int]) -> Callable[..., int]:
        """Return a wrapper that keeps an exception for the end of the block, and returns an I/O error instead."""

        def call_hook(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:  # noqa: BLE001 - a Ctrl-C that comes here must not be lost
                self.raised = error
                return _IOERR

        return call_hook

    def _get(self, name: bytes) -> Any:
        return _GetSystemCall(self._plain.get_system_call)(ctypes.addressof(self._plain), name)

    def _set(self, name: bytes, function: int | None) -> None:
        _SetSystemCall(self._plain.set_system_call)(ctypes.addressof(self._plain), name, function)

    def _pointer(self, function: Any) -> int | None:
        self._kept.append(function)
        return ctypes.cast(function, c_void_p).value

    def _note(self, what: str, file: int, offset_bytes: int = 0, size_bytes: int = 0) -> None:
        if self.calls is not None:
            self.calls.seen.append(VfsCall(what, self._files.get(file, "other"), offset_bytes, size_bytes))

    def _open(self, vfs: int, name: int, file: int, flags: int, out: int) -> int:
        code = int(_Open(self._plain.open)(vfs, name, file, flags, out))
        methods = c_void_p.from_address(file).value
        if code == 0 and methods:
            self._files[file] = next((kind for bit, kind in _KINDS.items() if flags & bit), "other")
            if methods not in self._methods:
                self._methods[methods] = self._counting(_Methods.from_address(methods))
            c_void_p.from_address(file).value = ctypes.addressof(self._methods[methods])
        return code

    def _counting(self, plain: _Methods) -> _Methods:
        """Return the methods of a file with those replaced that are counted."""
        write, truncate, sync = _Write(plain.write), _Truncate(plain.truncate), _Sync(plain.sync)

        def counted_write(file: int, data: int, size_bytes: int, offset_bytes: int) -> int:
            self._note("write", file, offset_bytes, size_bytes)
            return int(write(file, data, size_bytes, offset_bytes))

        def counted_truncate(file: int, size_bytes: int) -> int:
            self._note("truncate", file, size_bytes)
            return int(truncate(file, size_bytes))

        def counted_sync(file: int, flags: int) -> int:
            self._note("sync", file)
            return int(sync(file, flags))

        counting = _Methods.from_buffer_copy(plain)
        counting.write = self._pointer(_Write(self._safe(counted_write)))
        counting.truncate = self._pointer(_Truncate(self._safe(counted_truncate)))
        counting.sync = self._pointer(_Sync(self._safe(counted_sync)))
        return counting


@cache
def _counter() -> _Counter:
    return _Counter(ctypes.CDLL(_library_path()))


def _library_path() -> str:
    """Return the path of the shared library that Python's own module has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libsqlite3" in path:
            return f"/{path}"
    raise Unmeasurable(
        "this Python has SQLite built in, so its calls cannot be counted; use one that loads libsqlite3, as of Debian"
    )


@contextmanager
def counting() -> Iterator[Calls]:
    """Count the calls of every connection that `counting_connection` opens inside the block."""
    calls = Calls()
    with _counter().system_calls(calls):
        yield calls


def counting_connection(path: Path, **options: Any) -> sqlite3.Connection:
    """Return an autocommit connection whose calls are counted."""
    uri = f"{path.as_uri()}?vfs={_NAME.decode()}"
    connection: sqlite3.Connection = sqlite3.connect(uri, uri=True, isolation_level=None, **options)
    return connection
