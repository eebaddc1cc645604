"""Judge a recovered database: find p such that its whole content equals the model after p transactions.

If there is no such p, the versions of the rows say what is wrong: each row found shows which transaction wrote it, so
earlier writes of that row are superseded and later ones are undone. Transaction 0 is the setup. `top` is the last
transaction of which anything is visible:
- foreign: a row that no transaction wrote;
- hole: a transaction is missing as a whole, although a later one is visible;
- stale: a transaction before `top` is visible only in part;
- torn: `top` itself is visible only in part.

A row says nothing about the transactions that wrote it before its visible version. An absent row was never there or has
been deleted. If the transaction after `top` would have deleted it, that transaction counts as visible and becomes
`top`, because a transaction in flight is more likely than the loss of an old one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from rig.contract.findings import Finding, FindingKind
from rig.workloads.operations import Content, Operation, Row, Table

_SHOWN_CHARS = 60


class Readable(Protocol):
    """What the oracle needs of an open database; see `rig.engines.Database`."""

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of every table."""

    def problems(self) -> list[str]:
        """Return what the engine's own checks complain about."""

    def close(self) -> None:
        """Close as a careful program would."""


class Oracle:
    """Judges content, never files, against the model after every number of transactions."""

    def __init__(
        self,
        tables: tuple[Table, ...],
        models: tuple[Content, ...],
        transaction: Callable[[int], tuple[Operation, ...]],
    ) -> None:
        self._tables = tables
        self._models = models
        self._transaction = transaction

    def judge(self, open_database: Callable[[], Readable], *, keep_open: bool = False) -> Finding:
        """Open, check and compare; the engine's exceptions become findings."""
        # An engine may raise any exception on a damaged file; each becomes a finding in the engine's words.
        try:
            database = open_database()
        except Exception as error:  # noqa: BLE001
            return Finding(FindingKind.UNOPENABLE, detail=_words(error))
        finding = self.judge_open(database)
        try:
            if not keep_open:
                database.close()
        except Exception as error:  # noqa: BLE001
            problems = [finding.detail] if finding.kind is FindingKind.CORRUPT else []
            return Finding(FindingKind.CORRUPT, detail="; ".join([*problems, f"close: {_words(error)}"]))
        return finding

    def judge_open(self, database: Readable) -> Finding:
        """Check and compare over a connection that stays open."""
        try:
            problems = database.problems()
            if not problems:
                return self.judge_content(database.content(self._tables))
        except Exception as error:  # noqa: BLE001
            problems = [_words(error)]
        return Finding(FindingKind.CORRUPT, detail="; ".join(problems))

    def judge_content(self, content: Content) -> Finding:
        """Compare a whole content with every model."""
        for count in reversed(range(len(self._models))):
            if content == self._models[count]:
                return Finding(FindingKind.PREFIX, recovered=count)
        return self._diagnosed(content)

    def _diagnosed(self, content: Content) -> Finding:
        difference = self._first_difference(content)
        foreign = self._foreign(content)
        if foreign:
            return Finding(FindingKind.FOREIGN, detail=f"{foreign}; {difference}")
        top = self._top(content)
        visible, undone = self._visible_and_undone(content, top)
        missing = undone - visible
        if missing:
            return Finding(FindingKind.HOLE, detail=f"transaction {min(missing)} is missing before {top}; {difference}")
        if min(undone) < top:
            return Finding(
                FindingKind.STALE, detail=f"transaction {min(undone)} is partly undone before {top}; {difference}"
            )
        return Finding(FindingKind.TORN, detail=f"transaction {top} is partly there; {difference}")

    def _first_difference(self, content: Content) -> str:
        """Return the first row in which the content differs from the nearest model."""
        nearest = min(range(len(self._models)), key=lambda count: len(_differences(content, self._models[count])))
        table, key = min(_differences(content, self._models[nearest]))
        expected, found = self._models[nearest][table].get(key), content[table].get(key)
        return f"{table}/{key} (nearest model {nearest}): expected {_shown(expected)}, found {_shown(found)}"

    def _foreign(self, content: Content) -> str:
        for table, rows in content.items():
            for key, row in rows.items():
                if not any(model[table].get(key) == row for model in self._models):
                    return f"{table}/{key} holds {_shown(row)}, which no transaction wrote"
        return ""

    @cached_property
    def _versions(self) -> dict[tuple[str, int], list[tuple[int, Row | None]]]:
        """The versions of each row, oldest first, each with the transaction that wrote it; -1 for never written."""
        versions: dict[tuple[str, int], list[tuple[int, Row | None]]] = defaultdict(lambda: [(-1, None)])
        for table, rows in self._models[0].items():
            for key, row in rows.items():
                versions[table, key].append((0, row))
        for number in range(1, len(self._models)):
            for table, key in {(operation.table, operation.key) for operation in self._transaction(number)}:
                versions[table, key].append((number, self._models[number][table].get(key)))
        return dict(versions)

    def _top(self, content: Content) -> int:
        """Return the last transaction of which anything is visible."""
        top = 0
        for (table, key), versions in self._versions.items():
            found = content[table].get(key)
            top = max(top, next(number for number, row in versions if row == found))
        while top + 1 < len(self._models) and self._has_begun(content, top + 1):
            top += 1
        return top

    def _has_begun(self, content: Content, number: int) -> bool:
        """Whether some row is as the transaction leaves it and not as it found it."""
        before, after = self._models[number - 1], self._models[number]
        places = [(operation.table, operation.key) for operation in self._transaction(number)]
        return any(content[t].get(key) == after[t].get(key) != before[t].get(key) for t, key in places)

    def _visible_and_undone(self, content: Content, top: int) -> tuple[set[int], set[int]]:
        """Return the transactions up to `top` with a visible row, and those with a row that is older than theirs."""
        visible, undone = set(), set()
        for (table, key), versions in self._versions.items():
            found = content[table].get(key)
            seen = max(number for number, row in versions if row == found and number <= top)
            visible.add(seen)
            undone |= {number for number, _ in versions if seen < number <= top}
        return visible, undone


def _differences(content: Content, model: Content) -> list[tuple[str, int]]:
    return [
        (table, key)
        for table, rows in model.items()
        for key in rows.keys() | content[table].keys()
        if rows.get(key) != content[table].get(key)
    ]


def _shown(row: Row | None) -> str:
    if row is None:
        return "nothing"
    text = repr(row)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
