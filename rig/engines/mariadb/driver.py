"""MariaDB as a server of its own, to which the workload has one connection.

Opening starts the server, which recovers, and connects. The check is CHECK TABLE EXTENDED on every table, and the
foreign keys; the server itself verifies the checksum of every page that it reads.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from rig.engines.mariadb import instance, options, statements
from rig.engines.mariadb.client import MariaError
from rig.engines.mariadb.session import MariaSession
from rig.engines.server import ServerDown
from rig.workloads.events import EventKind
from rig.workloads.operations import Content, Operation, Table

# Numbers of errors that the disk may have caused: the server is gone (2002 to 2055), a file could not be read, written
# or found, the disk is full, a table or index is damaged or lost (mysqld_error.h and errmsg.h). Numbers below 1000 are
# errors of the operating system and its files (my_sys.h).
_FAULTS = frozenset({
    1005, 1016, 1017, 1018, 1019, 1020, 1021, 1023, 1024, 1025, 1026, 1030, 1033, 1034, 1035, 1036, 1114, 1126, 1146,
    1180, 1181, 1194, 1195, 1459, 1598, 1712, 1728, 1812, 1813, 1814, 1877, 1932, 2002, 2006, 2013, 2055,
})  # fmt: skip
_OS_ERRORS = 1000
_REFERENCES = (
    "SELECT table_name, column_name, referenced_table_name FROM information_schema.key_column_usage"
    f" WHERE table_schema = '{instance.DATABASE}' AND referenced_table_name IS NOT NULL"
)
# The database in which tables are made.
_MAKING = "making"
_VERSION = "version"
_SOUND = ("status", "OK")
# The only file that is mapped, if a transaction concerns two engines.
_MAPPED = "tc.log"


class MariaDatabase(MariaSession):
    """A server and one connection to it."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        folder = f"{directory}/{instance.FOLDER}"
        if not instance.exists(folder):
            instance.make(folder)
        self._names = [name for name in settings if name != options.SETTING]
        self._server = instance.start(folder, options.variables(settings))
        try:
            super().__init__(instance.connect(folder))
        except MariaError as error:
            self._server.end(signal.SIGKILL)
            raise MariaError(f"{error}; the server: {self._server.words}", error.number) from None

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them elsewhere, then move them all in one statement.

        A table cannot be made within a transaction, but a statement that renames several is atomic (Atomic DDL).
        """
        for statement in (f"DROP DATABASE IF EXISTS {_MAKING}", f"CREATE DATABASE {_MAKING}", f"USE {_MAKING}"):
            self._connection.execute(statement)
        for table in tables:
            for statement in statements.SQL.of_table(table):
                self._connection.execute(statement)
        self.commit(rows)
        self._connection.execute(f"USE {instance.DATABASE}")
        moved = (f"{_MAKING}.{name} TO {name}" for name in (statements.SQL.quote_name(table.name) for table in tables))
        self._connection.execute(f"RENAME TABLE {', '.join(moved)}")
        # Under every setting, because data in the server's memory cannot be made durable from outside.
        self._connection.execute("FLUSH ENGINE LOGS")

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the given tables; leave out tables that do not exist."""
        known = set(self._tables())
        content = {}
        for table in (table for table in tables if table.name in known):
            kinds = [kind for _, kind in table.columns]
            rows = self._connection.execute(f"SELECT * FROM {statements.SQL.quote_name(table.name)}")
            content[table.name] = {
                int(key): tuple(kind(value) for kind, value in zip(kinds, row, strict=True)) for key, *row in rows
            }
        return content

    def problems(self) -> list[str]:
        """Return what CHECK TABLE finds, and rows that refer to a missing row."""
        problems: list[str] = []
        names = self._tables()
        if names:
            checked = self._connection.execute(f"CHECK TABLE {_name_list(names)} EXTENDED")
            problems += [f"{table}: {words}" for table, _, kind, words in checked if (kind, words) != _SOUND]
        for table, column, other in self._connection.execute(_REFERENCES):
            missing = (
                f"SELECT t.id FROM {statements.SQL.quote_name(table)} t"
                f" WHERE NOT EXISTS (SELECT 1 FROM {statements.SQL.quote_name(other)} o"
                f" WHERE o.id = t.{column}) LIMIT 5"
            )
            problems += [f"foreign key: {table} {key}" for (key,) in self._connection.execute(missing)]
        return problems

    def settings(self) -> dict[str, str]:
        """Return variables and version, read back from the server."""
        names = ", ".join(f"'{name}'" for name in (*options.READ_BACK, *self._names, _VERSION))
        shown = self._connection.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        has = {name: value for name, value in shown}  # noqa: C416 - rows of any length, to mypy
        return {options.SETTING: options.word(has), **has, _VERSION: has[_VERSION].partition("-")[0]}

    def happen(self, kind: EventKind, variant: str) -> bool:  # noqa: ARG002 - there is one
        """Give free space back."""
        assert kind is EventKind.VACUUM
        self._connection.execute(f"OPTIMIZE TABLE {_name_list(self._tables())}")
        return True

    def rollback(self) -> None:
        """Roll back the transaction that raised; raise MariaError if the server is gone."""
        if self._connection.is_lost:
            raise MariaError(f"the server is gone: {self._server.words}")
        super().rollback()

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log that checkpoints move into the database: always."""
        return True

    def checkpoint(self) -> None:
        """Make a checkpoint now."""
        self._connection.execute("SET GLOBAL innodb_log_checkpoint_now = ON")

    def shrink_log(self) -> None:
        """Begin a new file of the binary log, which needs space; InnoDB's log has a fixed size."""
        self._connection.execute("FLUSH BINARY LOGS")

    def forget(self) -> None:
        """Do nothing: a server keeps pages in its own memory for as long as it runs."""

    def close(self) -> None:
        """Disconnect and shut the server down; that makes a checkpoint."""
        self._connection.close()
        self._server.stop(signal.SIGTERM)

    def leave(self) -> None:
        """Disconnect and kill the server: the next start recovers."""
        self._connection.close()
        self._server.end(signal.SIGKILL)

    def _tables(self) -> list[str]:
        return [name for (name,) in self._connection.execute("SHOW TABLES")]


def open_database(directory: str, settings: Mapping[str, str]) -> MariaDatabase:
    """Start a server on the data directory in a directory, or on a new one, and connect."""
    return MariaDatabase(directory, settings)


def connected(directory: str) -> MariaSession:
    """Return a further connection to the server that runs on the data directory in a directory."""
    return MariaSession(instance.connect(f"{directory}/{instance.FOLDER}"))


def is_fault(error: Exception) -> bool:
    """Return whether an error of the server may be due to the disk or its content."""
    if isinstance(error, MariaError):
        return error.number in _FAULTS or error.number < _OS_ERRORS
    return isinstance(error, ServerDown)


def is_mapped(name: str) -> bool:
    """Return whether a file of the database is mapped into memory."""
    return name == _MAPPED


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(map(statements.SQL.quote_name, names))
