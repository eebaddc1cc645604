"""A connection through libmariadb, MariaDB's library for clients: one statement at a time, all values as text.

It uses ctypes, because a binding would be one more thing to install and, under emulation, to load.
"""

from __future__ import annotations

import ctypes
from typing import Any

# enum mysql_option of mysql.h.
_CHARACTER_SET, _VERIFY_SERVER = 7, 21
# CR_SERVER_GONE_ERROR, CR_SERVER_LOST, CR_SERVER_LOST_EXTENDED of errmsg.h.
_LOST = frozenset({2006, 2013, 2055})


class MariaError(Exception):
    """The server's message instead of a result; `number` is the error number of the server or the library."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(f"{message} [{number}]" if number else message)
        self.number = number


class MariaConnection:
    """One connection as root over a socket; raise MariaError if it cannot be made."""

    def __init__(self, socket: str) -> None:
        self._library = _load_library()
        self._connection: Any = self._library.mysql_init(None)
        self.is_lost = False
        self._library.mysql_options(self._connection, _CHARACTER_SET, b"utf8mb4")
        self._library.mysql_options(self._connection, _VERIFY_SERVER, b"\0")
        if not self._library.mysql_real_connect(
            self._connection, b"localhost", b"root", None, None, 0, socket.encode(), 0
        ):
            error = self._error()
            self.close()
            raise error

    def execute(self, statement: str) -> list[tuple[str, ...]]:
        """Carry out a statement; return its rows, with NULL as an empty text. Raise MariaError."""
        text = statement.encode()
        if self._library.mysql_real_query(self._connection, text, len(text)):
            raise self._error()
        result = self._library.mysql_store_result(self._connection)
        if not result:
            if self._library.mysql_errno(self._connection):
                raise self._error()
            return []
        try:
            columns = range(self._library.mysql_num_fields(result))
            rows = []
            while row := self._library.mysql_fetch_row(result):
                rows.append(tuple([(row[column] or b"").decode() for column in columns]))
            return rows
        finally:
            self._library.mysql_free_result(result)

    def close(self) -> None:
        """Close the connection."""
        self._library.mysql_close(self._connection)

    def _error(self) -> MariaError:
        number = self._library.mysql_errno(self._connection)
        self.is_lost = self.is_lost or number in _LOST
        message = self._library.mysql_error(self._connection).decode(errors="replace")
        return MariaError(" ".join(message.split()), number)


def _load_library() -> ctypes.CDLL:
    library = ctypes.CDLL("libmariadb.so.3")
    pointer, number, size, text = ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulong, ctypes.c_char_p
    for name, result, arguments in (
        ("mysql_init", pointer, [pointer]),
        ("mysql_options", ctypes.c_int, [pointer, ctypes.c_int, text]),
        ("mysql_real_connect", pointer, [pointer, text, text, text, text, number, text, size]),
        ("mysql_real_query", ctypes.c_int, [pointer, text, size]),
        ("mysql_store_result", pointer, [pointer]),
        ("mysql_num_fields", number, [pointer]),
        ("mysql_fetch_row", ctypes.POINTER(text), [pointer]),
        ("mysql_free_result", None, [pointer]),
        ("mysql_errno", number, [pointer]),
        ("mysql_error", text, [pointer]),
        ("mysql_close", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
