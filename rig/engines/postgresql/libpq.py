"""A connection through libpq, PostgreSQL's library for clients: one statement at a time, all values as text.

It uses ctypes, because a binding would be one more thing to install and, under emulation, to load.
"""

from __future__ import annotations

import ctypes
from typing import Any

from rig.workloads.operations import Value

# ExecStatusType, ConnStatusType and PGTransactionStatusType of libpq-fe.h.
_DONE = {1, 2}  # PGRES_COMMAND_OK, PGRES_TUPLES_OK
_CONNECTION_OK = 0
_IDLE, _UNKNOWN = 0, 4
_FIELD_SQLSTATE, _FIELD_MESSAGE, _FIELD_DETAIL = ord("C"), ord("M"), ord("D")


class PostgresError(Exception):
    """The server's message instead of a result; `state` is its SQLSTATE, empty if the server gave none."""

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(f"{message} [{state}]" if state else message)
        self.state = state


class PostgresConnection:
    """One connection; raise PostgresError if it cannot be made."""

    def __init__(self, **parameters: str) -> None:
        self._libpq = _load_library()
        words = " ".join(f"{name}='{value}'" for name, value in parameters.items())
        self._connection: Any = self._libpq.PQconnectdb(words.encode())
        if self._libpq.PQstatus(self._connection) != _CONNECTION_OK:
            message = self._message
            self.close()
            raise PostgresError(message)

    def execute(self, statement: str, *values: Value) -> list[tuple[str, ...]]:
        """Carry out a statement; return its rows, with NULL as an empty text. Raise PostgresError."""
        texts = (ctypes.c_char_p * len(values))(*(str(value).encode() for value in values))
        arguments = (statement.encode(), len(values), None, texts, None, None, 0)
        result = self._libpq.PQexecParams(self._connection, *arguments)
        try:
            if self._libpq.PQresultStatus(result) not in _DONE:
                raise PostgresError(*self._complaint(result))
            columns = range(self._libpq.PQnfields(result))
            value = self._libpq.PQgetvalue
            return [
                tuple([value(result, row, column).decode() for column in columns])
                for row in range(self._libpq.PQntuples(result))
            ]
        finally:
            self._libpq.PQclear(result)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, or failed and not yet rolled back; False if the connection is lost."""
        return self._libpq.PQtransactionStatus(self._connection) not in {_IDLE, _UNKNOWN}

    @property
    def is_lost(self) -> bool:
        """Whether the server has ended the connection."""
        return bool(self._libpq.PQstatus(self._connection) != _CONNECTION_OK)

    def close(self) -> None:
        """Close the connection."""
        self._libpq.PQfinish(self._connection)

    @property
    def _message(self) -> str:
        return _one_line(self._libpq.PQerrorMessage(self._connection))

    def _complaint(self, result: Any) -> tuple[str, str]:
        """Return what the server said, and its SQLSTATE."""
        fields = [self._libpq.PQresultErrorField(result, each) for each in (_FIELD_MESSAGE, _FIELD_DETAIL)]
        words = "; ".join(_one_line(each) for each in fields if each)
        state = self._libpq.PQresultErrorField(result, _FIELD_SQLSTATE) or b""
        return words or self._message, state.decode()


def _one_line(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())


def _load_library() -> ctypes.CDLL:
    library = ctypes.CDLL("libpq.so.5")
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("PQconnectdb", pointer, [text]),
        ("PQstatus", number, [pointer]),
        ("PQtransactionStatus", number, [pointer]),
        ("PQerrorMessage", text, [pointer]),
        ("PQexecParams", pointer, [pointer, text, number, pointer, pointer, pointer, pointer, number]),
        ("PQresultStatus", number, [pointer]),
        ("PQresultErrorField", text, [pointer, number]),
        ("PQntuples", number, [pointer]),
        ("PQnfields", number, [pointer]),
        ("PQgetvalue", text, [pointer, number, number]),
        ("PQclear", None, [pointer]),
        ("PQfinish", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
