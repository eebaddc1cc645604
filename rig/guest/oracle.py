"""Judge a recovered database: find p such that its whole content equals the model after p transactions.

Where there is no such p, say what is wrong with the content, from the versions of its rows. Every version of a row
is known by the transaction that wrote it, so each row found is of a known transaction, or foreign.
With `top` the last transaction of which anything is visible:
hole: a transaction before `top` is missing as a whole; stale: one before `top` is visible in part;
torn: `top` itself is visible in part; foreign: a row that no transaction wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rig.engines import Database
from rig.workloads.operations import Content, Operation, Row, Table

_SHOWN_CHARS = 60


@dataclass(frozen=True)
class Finding:
    """What reopening showed. `kind` is the spelling of `rig.results.VerdictKind`, or "prefix" when p was found."""

    kind: str
    recovered: int | None = None
    detail: str = ""


class Oracle:
    """Knows the model after every number of transactions; judges content, never a file."""

    def __init__(
        self,
        tables: tuple[Table, ...],
        models: tuple[Content, ...],
        transaction: Callable[[int], tuple[Operation, ...]],
    ) -> None:
        self._tables = tables
        self._models = models
        self._transaction = transaction

    def judge(self, open_database: Callable[[], Database]) -> Finding:
        """Open, check and compare; the engine's exceptions become findings."""
        # An engine may raise anything at all over a damaged file: whatever it is, these are its words.
        try:
            database = open_database()
        except Exception as error:  # noqa: BLE001
            return Finding("unopenable", detail=_words(error))
        try:
            problems = database.problems()
            if problems:
                return Finding("corrupt", detail="; ".join(problems))
            content = database.content(self._tables)
        except Exception as error:  # noqa: BLE001
            return Finding("corrupt", detail=_words(error))
        finally:
            database.close()
        return self.judge_content(content)

    def judge_content(self, content: Content) -> Finding:
        """Compare a whole content with every model."""
        for count in reversed(range(len(self._models))):
            if content == self._models[count]:
                return Finding("prefix", recovered=count)
        return self._diagnosed(content)

    def _diagnosed(self, content: Content) -> Finding:
        nearest = max(range(len(self._models)), key=lambda count: self._agreement(content, count))
        difference = self._first_difference(content, nearest)
        foreign = self._foreign(content)
        if foreign:
            return Finding("foreign", detail=f"{foreign}; {difference}")
        seen = {number: self._visible(content, number) for number in range(1, len(self._models))}
        top = max((number for number, share in seen.items() if share > 0), default=0)
        missing = [number for number in range(1, top) if seen[number] == 0]
        partial = [number for number in range(1, top) if 0 < seen[number] < 1]
        if missing:
            return Finding("hole", detail=f"transaction {missing[0]} is missing before {top}; {difference}")
        if partial:
            return Finding("stale", detail=f"transaction {partial[0]} is partly undone before {top}; {difference}")
        return Finding("torn", detail=f"transaction {top} is partly there; {difference}")

    def _agreement(self, content: Content, count: int) -> int:
        model = self._models[count]
        return sum(content[table].get(key) == row for table, rows in model.items() for key, row in rows.items()) - sum(
            key not in model[table] for table, rows in content.items() for key in rows
        )

    def _first_difference(self, content: Content, count: int) -> str:
        model = self._models[count]
        for table, rows in model.items():
            for key in sorted(rows.keys() | content[table].keys()):
                expected, found = rows.get(key), content[table].get(key)
                if expected != found:
                    return f"{table}/{key} (nearest model {count}): expected {_shown(expected)}, found {_shown(found)}"
        return f"no difference from model {count}"

    def _foreign(self, content: Content) -> str:
        for table, rows in content.items():
            for key, row in rows.items():
                if not any(model[table].get(key) == row for model in self._models):
                    return f"{table}/{key} holds {_shown(row)}, which no transaction wrote"
        return ""

    def _visible(self, content: Content, number: int) -> float:
        """Return the share of a transaction's rows whose found version is its own or a later one."""
        operations = self._transaction(number)
        visible = 0
        for operation in operations:
            found = content[operation.table].get(operation.key)
            visible += any(model[operation.table].get(operation.key) == found for model in self._models[number:])
        return visible / len(operations)


def _shown(row: Row | None) -> str:
    if row is None:
        return "nothing"
    text = repr(row)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
