"""PostgreSQL as a server of its own, to which the workload has one connection.

Opening starts the server, which recovers, and connects. The check is `amcheck` on every table and index, and the
constraints; the server itself verifies the checksum of every page that it reads.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from rig.engines.postgresql import cluster, options
from rig.engines.postgresql.libpq import PostgresError
from rig.engines.postgresql.session import PostgresSession
from rig.engines.server import ServerDown
from rig.workloads.events import EventKind
from rig.workloads.operations import Content, Operation, Table, Verb

# Classes of SQLSTATE for errors that the disk may have caused: insufficient resources, intervention (the server goes
# down), system errors, internal errors (damaged data among them), connections (appendix A of the documentation). An
# error without a class means that the server is gone.
_FAULT_CLASSES = frozenset({"", "08", "53", "57", "58", "XX"})
_OURS = "relnamespace = 'public'::regnamespace"
_TABLES = f"SELECT relname FROM pg_class WHERE relkind = 'r' AND {_OURS} ORDER BY relname"
HEAPS = (
    "SELECT relname, blkno, offnum, msg FROM pg_class, LATERAL verify_heapam(pg_class.oid)"
    f" WHERE relkind = 'r' AND {_OURS} LIMIT 5"
)
# Raises an error at the first problem; with `true` every row must have its entry in the index.
INDEXES = f"SELECT bt_index_check(oid, true) FROM pg_class WHERE relkind = 'i' AND {_OURS}"
CATALOGUE = INDEXES.replace(", true", "").replace("public", "pg_catalog")
_REFERENCES = (
    "SELECT conrelid::regclass, attname, confrelid::regclass FROM pg_constraint"
    " JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1] WHERE contype = 'f'"
)


class PostgresDatabase(PostgresSession):
    """A server and one connection to it."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        folder = f"{directory}/{cluster.FOLDER}"
        if not cluster.exists(folder):
            cluster.make(folder)
        self._parameters = options.parameters(settings)
        self._names = [name for name in settings if name != options.SETTING]
        self._server = cluster.start(folder, self._parameters)
        try:
            super().__init__(cluster.connect(folder))
        except PostgresError as error:
            self._server.end(signal.SIGQUIT)
            raise PostgresError(f"{error}; the server: {self._server.words}", error.state) from None

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        """Create the tables and fill them, in one transaction."""
        made = [Operation(Verb.MAKE_TABLE, table.name, made=table) for table in tables]
        self._connection.execute("BEGIN")
        # Under every setting, because data in the server's memory cannot be made durable from outside.
        self._connection.execute("SET LOCAL synchronous_commit = on")
        self._carry_out([*made, *rows])
        self._connection.execute("COMMIT")

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of the given tables; leave out tables that do not exist."""
        known = {name for (name,) in self._connection.execute(_TABLES)}
        content = {}
        for table in (table for table in tables if table.name in known):
            kinds = [kind for _, kind in table.columns]
            rows = self._connection.execute(f"SELECT * FROM {table.name}")
            content[table.name] = {
                int(key): tuple(kind(value) for kind, value in zip(kinds, row, strict=True)) for key, *row in rows
            }
        return content

    def problems(self) -> list[str]:
        """Return what amcheck finds in tables and indexes, and rows that refer to a missing row."""
        problems = [" ".join(row) for row in self._connection.execute(HEAPS)]
        self._connection.execute(INDEXES)
        self._connection.execute(CATALOGUE)
        for table, column, other in self._connection.execute(_REFERENCES):
            missing = f"SELECT id FROM {table} WHERE NOT EXISTS (SELECT FROM {other} o WHERE o.id = {column}) LIMIT 5"
            problems += [f"foreign key: {table} {key}" for (key,) in self._connection.execute(missing)]
        return problems

    def settings(self) -> dict[str, str]:
        """Return parameters and version, read back from the server."""
        has = {name: self._show(name) for name in (*options.READ_BACK, *self._names)}
        return {options.SETTING: options.word(has), **has, "version": self._show("server_version").split()[0]}

    def happen(self, kind: EventKind, variant: str) -> bool:
        """Give free space back."""
        assert kind is EventKind.VACUUM
        self._connection.execute("VACUUM FULL" if variant == "full" else "VACUUM")
        return True

    def rollback(self) -> None:
        """Roll back the transaction that raised; raise PostgresError if the server is gone."""
        if self._connection.is_lost:
            raise PostgresError(f"the server is gone: {self._server.words}")
        super().rollback()

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a log that checkpoints move into the database: always."""
        return True

    def checkpoint(self) -> None:
        """Make a checkpoint now."""
        self._connection.execute("CHECKPOINT")

    def shrink_log(self) -> None:
        """Begin a new file of the log, which needs space."""
        self._connection.execute("SELECT pg_switch_wal()")

    def forget(self) -> None:
        """Do nothing: a server keeps pages in its shared memory for as long as it runs."""

    def close(self) -> None:
        """Disconnect and shut the server down; that makes a checkpoint."""
        self._connection.close()
        self._server.stop(signal.SIGINT)

    def leave(self) -> None:
        """Disconnect and end the server at once, as an immediate shutdown does: the next start recovers."""
        self._connection.close()
        self._server.end(signal.SIGQUIT)

    def _show(self, name: str) -> str:
        ((value,),) = self._connection.execute(f"SHOW {name}")
        return value


def open_database(directory: str, settings: Mapping[str, str]) -> PostgresDatabase:
    """Start a server on the cluster in a directory, or on a new one, and connect."""
    return PostgresDatabase(directory, settings)


def connected(directory: str) -> PostgresSession:
    """Return a further connection to the server that runs on the cluster in a directory."""
    return PostgresSession(cluster.connect(f"{directory}/{cluster.FOLDER}"))


def is_fault(error: Exception) -> bool:
    """Return whether an error of the server may be due to the disk or its content."""
    return isinstance(error, ServerDown) or (isinstance(error, PostgresError) and error.state[:2] in _FAULT_CLASSES)


def is_mapped(name: str) -> bool:  # noqa: ARG001 - the same for all
    """Return False: no file of the database is mapped into memory."""
    return False
