"""One connection to the server: its transactions and single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.engines.mariadb import statements
from rig.engines.mariadb.client import MariaConnection, MariaError
from rig.workloads.operations import ROW_VERBS, Operation, Row, Verb


class MariaSession:
    """A connection in autocommit mode; transactions are explicit statements."""

    def __init__(self, connection: MariaConnection) -> None:
        self._connection = connection
        self._columns: dict[str, Mapping[str, type]] = {}

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after its COMMIT, or its ROLLBACK, has returned."""
        self._connection.execute("BEGIN")
        savepoints = statements.Savepoints()
        for operation in operations:
            if operation.verb in ROW_VERBS:
                # Only an update needs the columns.
                columns = [*self._columns_of(operation.table)] if operation.verb is Verb.UPDATE else []
                self._connection.execute(statements.of_row(operation, columns))
            else:
                self._connection.execute(savepoints.statement(operation.verb))
        if not operations or operations[-1].verb is not Verb.ROLL_BACK:
            self._connection.execute("COMMIT")

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key."""
        kinds = self._columns_of(table).values()
        rows = self._connection.execute(f"SELECT * FROM {statements.SQL.quote_name(table)} WHERE id = {key}")
        return tuple(kind(value) for kind, value in zip(kinds, rows[0][1:], strict=True)) if rows else None

    def rollback(self) -> None:
        """Roll back the transaction that raised; raise MariaError if the server is gone."""
        if self._connection.is_lost:
            raise MariaError("the server is gone")
        self._connection.execute("ROLLBACK")

    def _columns_of(self, table: str) -> Mapping[str, type]:
        """Return the columns of a table besides its key, in order, each with the type of its values."""
        if table not in self._columns:
            shown = self._connection.execute(f"SHOW COLUMNS FROM {statements.SQL.quote_name(table)}")
            self._columns[table] = {name: statements.kind_of(kind) for name, kind, *_ in shown if name != "id"}
        return self._columns[table]
