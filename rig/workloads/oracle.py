"""Judge a recovered database: find p such that its whole content equals the model after p transactions.

If there is no such p, the versions of the rows say what is wrong: each row found shows which transaction wrote it, so
earlier writes of that row are superseded and later ones are undone. Transaction 0 is the setup. `top` is the last
transaction with any visible effect:
- foreign: a row that no transaction wrote;
- hole: a transaction is missing as a whole, although a later one is visible;
- stale: a transaction before `top` is visible only in part;
- torn: `top` itself is visible only in part.

If the tables are in several databases (`Parted`), each database may hold a prefix of its own. If all hold prefixes, but
of no common length, the content is split: a transaction is whole in one database and missing in another.

A table that is not always there counts as a row of its own: whether it exists. A transaction has not written what it
rolled back to a savepoint. A row says nothing about the transactions that wrote it before its visible version. An
absent row was never there or has been deleted. If the transaction after `top` would have deleted it, that transaction
counts as visible and becomes `top`, because a transaction in flight is more likely than the loss of an old one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

from rig.contract.findings import Finding, FindingKind
from rig.workloads.operations import Content, Operation, Row, Table, effective

_SHOWN_CHARS = 60
# The key of the row that says that a table exists; workloads count from 0.
_EXISTS_KEY = -1
_EXISTS: Row = ("the table exists",)
# (table, key), and what a content holds there.
_Place = tuple[str, int]
_Flat = Mapping[_Place, Row]


class Readable(Protocol):
    """What the oracle needs of an open database; see `rig.engines.Database`."""

    def content(self, tables: Sequence[Table]) -> Content:
        """Return every row of these tables; a table that does not exist is absent."""

    def problems(self) -> list[str]:
        """Return what the engine's own checks complain about."""

    def close(self) -> None:
        """Close as a careful program would."""


@runtime_checkable
class Parted(Protocol):
    """What the oracle needs in addition if the tables may be in several databases."""

    def parts(self, tables: Sequence[Table]) -> Sequence[frozenset[str]]:
        """Return the names of the tables in each database; empty if there is only one."""


_Open = TypeVar("_Open", bound=Readable)


def _close(database: Readable) -> None:
    database.close()


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
        self._histories: dict[frozenset[str], _History] = {}

    def judge(self, open_database: Callable[[], _Open], close: Callable[[_Open], None] = _close) -> Finding:
        """Open, check, compare and close; the engine's exceptions become findings."""
        # An engine may raise any exception on a damaged file; each becomes a finding in the engine's words.
        try:
            database = open_database()
        except Exception as error:  # noqa: BLE001
            return _finding(FindingKind.UNOPENABLE, error)
        finding = self.judge_open(database)
        try:
            close(database)
        except Exception as error:  # noqa: BLE001
            problems = [finding.detail] if finding.kind is FindingKind.CORRUPT else []
            return _finding(FindingKind.CORRUPT, error, "; ".join([*problems, "close: "]))
        return finding

    def judge_open(self, database: Readable) -> Finding:
        """Check and compare over a connection that stays open."""
        try:
            problems = database.problems()
            if not problems:
                parts = database.parts(self._tables) if isinstance(database, Parted) else ()
                return self.judge_content(database.content(self._tables), parts)
        except Exception as error:  # noqa: BLE001
            return _finding(FindingKind.CORRUPT, error)
        return Finding(FindingKind.CORRUPT, detail="; ".join(problems))

    def judge_content(self, content: Content, parts: Sequence[frozenset[str]] = ()) -> Finding:
        """Compare a whole content with every model, then each part with the models of its own tables."""
        for count in reversed(range(len(self._models))):
            if content == self._models[count]:
                return Finding(FindingKind.PREFIX, recovered=count)
        counts = [self._last_prefix(content, part) for part in parts]
        if counts and None not in counts:
            return _split_finding(parts, [count for count in counts if count is not None])
        every = (*self._models, content)
        # Whether a table exists says something only where it may be missing.
        names = {name for names in every for name in names}
        changing = frozenset(name for name in names if not all(name in names for names in every))
        if changing not in self._histories:
            self._histories[changing] = _History(self._models, self._transaction, changing)
        return _Diagnosis(self._histories[changing], content).finding

    def _last_prefix(self, content: Content, part: frozenset[str]) -> int | None:
        """Return the most transactions after which these tables were as found; None if they never were."""
        present = _within(content, part)
        counts = (
            count for count in reversed(range(len(self._models))) if _within(self._models[count], part) == present
        )
        return next(counts, None)


def _within(content: Content, part: frozenset[str]) -> Content:
    return {name: rows for name, rows in content.items() if name in part}


def _split_finding(parts: Sequence[frozenset[str]], counts: Sequence[int]) -> Finding:
    words = (f"{', '.join(sorted(part))} after {count}" for part, count in zip(parts, counts, strict=True))
    detail = f"each database is a prefix, but not of the same transactions: {'; '.join(words)}"
    return Finding(FindingKind.SPLIT, min(counts), detail)


class _History:
    """The models with one row for each place, and who wrote what."""

    def __init__(
        self,
        models: Sequence[Content],
        transaction: Callable[[int], tuple[Operation, ...]],
        changing: frozenset[str],
    ) -> None:
        self._changing = changing
        self._transaction = transaction
        self.models = [self.flat(model) for model in models]

    def flat(self, content: Content) -> dict[_Place, Row]:
        """Return a content as one mapping."""
        flat = {(table, key): row for table, rows in content.items() for key, row in rows.items()}
        return flat | {(table, _EXISTS_KEY): _EXISTS for table in content if table in self._changing}

    @cached_property
    def versions(self) -> dict[_Place, list[tuple[int, Row | None]]]:
        """The versions of each row, oldest first, each with the transaction that wrote it; -1 for never written."""
        versions: dict[_Place, list[tuple[int, Row | None]]] = defaultdict(lambda: [(-1, None)])
        for place, row in self.models[0].items():
            versions[place].append((0, row))
        for number in range(1, len(self.models)):
            for place in self.written_places(number):
                versions[place].append((number, self.models[number].get(place)))
        return dict(versions)

    def written_places(self, number: int) -> set[_Place]:
        """Return the places that a transaction wrote. With a table its rows go, and whether it exists changes."""
        before, after = self.models[number - 1], self.models[number]
        operations = effective(self._transaction(number))
        tables = {operation.table for operation in operations if operation.made}
        of_tables = {place for place in before.keys() | after.keys() if place[0] in tables}
        rows = {(operation.table, operation.key) for operation in operations if not operation.made}
        return rows | {place for place in of_tables if before.get(place) != after.get(place)}


class _Diagnosis:
    """What is wrong with a content that is no model."""

    def __init__(self, history: _History, content: Content) -> None:
        self._history = history
        self._models = history.models
        self._content = history.flat(content)

    @property
    def finding(self) -> Finding:
        difference = self._first_difference()
        foreign = self._foreign()
        if foreign:
            return Finding(FindingKind.FOREIGN, detail=f"{foreign}; {difference}")
        top = self._top()
        visible, undone = self._visible_and_undone(top)
        missing = undone - visible
        if missing:
            return Finding(FindingKind.HOLE, detail=f"transaction {min(missing)} is missing before {top}; {difference}")
        if min(undone) < top:
            return Finding(
                FindingKind.STALE, detail=f"transaction {min(undone)} is partly undone before {top}; {difference}"
            )
        return Finding(FindingKind.TORN, detail=f"transaction {top} is partly there; {difference}")

    def _first_difference(self) -> str:
        """Return the first row in which the content differs from the nearest model."""
        nearest = min(range(len(self._models)), key=lambda count: len(_differences(self._content, self._models[count])))
        place = min(_differences(self._content, self._models[nearest]))
        expected, row = self._models[nearest].get(place), self._content.get(place)
        return f"{_place_name(place)} (nearest model {nearest}): expected {_row_text(expected)}, found {_row_text(row)}"

    def _foreign(self) -> str:
        for place, row in self._content.items():
            if not any(model.get(place) == row for model in self._models):
                return f"{_place_name(place)} holds {_row_text(row)}, which no transaction wrote"
        return ""

    def _top(self) -> int:
        """Return the last transaction with any visible effect."""
        top = 0
        for place, versions in self._history.versions.items():
            current = self._content.get(place)
            top = max(top, next(number for number, row in versions if row == current))
        while top + 1 < len(self._models) and self._has_begun(top + 1):
            top += 1
        return top

    def _has_begun(self, number: int) -> bool:
        """Whether some row is as the transaction leaves it and not as it found it."""
        before, after = self._models[number - 1], self._models[number]
        return any(
            self._content.get(place) == after.get(place) != before.get(place)
            for place in self._history.written_places(number)
        )

    def _visible_and_undone(self, top: int) -> tuple[set[int], set[int]]:
        """Return the transactions up to `top` with a visible row, and those with a row that is older than theirs."""
        visible, undone = set(), set()
        for place, versions in self._history.versions.items():
            current = self._content.get(place)
            seen = max(number for number, row in versions if row == current and number <= top)
            visible.add(seen)
            undone |= {number for number, _ in versions if seen < number <= top}
        return visible, undone


def _differences(content: _Flat, model: _Flat) -> list[_Place]:
    return [place for place in model.keys() | content.keys() if model.get(place) != content.get(place)]


def _place_name(place: _Place) -> str:
    table, key = place
    return table if key == _EXISTS_KEY else f"{table}/{key}"


def _row_text(row: Row | None) -> str:
    if row is None:
        return "nothing"
    text = repr(row)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _finding(kind: FindingKind, error: Exception, before: str = "") -> Finding:
    """Return an error as a finding of this kind, or of another kind if the error tells of memory."""
    kind = FindingKind.OUT_OF_MEMORY if isinstance(error, MemoryError) else kind
    return Finding(kind, detail=f"{before}{type(error).__name__}: {error}")
