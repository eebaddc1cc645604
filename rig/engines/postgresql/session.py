"""One connection to the server: its transactions and single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.engines.postgresql import statements
from rig.engines.postgresql.libpq import PostgresConnection, PostgresError
from rig.workloads.operations import ROW_VERBS, Operation, Row, Verb

_COLUMNS = (
    "SELECT attname, atttypid::regtype FROM pg_attribute"
    " WHERE attrelid = $1::regclass AND attnum > 0 AND attname <> 'id' AND NOT attisdropped ORDER BY attnum"
)


class PostgresSession:
    """A connection in autocommit mode; transactions are explicit statements."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._columns: dict[str, Mapping[str, type]] = {}

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out one transaction; return after its COMMIT, or its ROLLBACK, has returned."""
        self._connection.execute("BEGIN")
        self._carry_out(operations)
        if not operations or operations[-1].verb is not Verb.ROLL_BACK:
            self._connection.execute("COMMIT")

    def row(self, table: str, key: int) -> Row | None:
        """Return the row under a key."""
        kinds = self._columns_of(table).values()
        rows = self._connection.execute(f"SELECT * FROM {table} WHERE id = $1", key)
        return tuple(kind(value) for kind, value in zip(kinds, rows[0][1:], strict=True)) if rows else None

    def rollback(self) -> None:
        """Roll back the transaction that raised; raise PostgresError if the server is gone."""
        if self._connection.is_lost:
            raise PostgresError("the server is gone")
        if self._connection.is_in_transaction:
            self._connection.execute("ROLLBACK")

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if operation.verb in ROW_VERBS:
                # Only an update needs the columns.
                columns = [*self._columns_of(operation.table)] if operation.verb is Verb.UPDATE else []
                statement, values = statements.of_row(operation, columns)
                self._connection.execute(statement, *values)
                continue
            for statement in statements.SQL.of_other(operation):
                self._connection.execute(statement)

    def _columns_of(self, table: str) -> Mapping[str, type]:
        """Return the columns of a table besides its key, in order, each with the type of its values."""
        if table not in self._columns:
            shown = self._connection.execute(_COLUMNS, table)
            self._columns[table] = {name: int if kind == statements.SQL.types[int] else str for name, kind in shown}
        return self._columns[table]
