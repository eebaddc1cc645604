"""The oracle: a content is prefix p exactly if it is the model after p transactions; otherwise it names the fault.

The contents to judge are made from the ledger and from random histories in which rows come back and repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.contract.results import VerdictKind
from rig.engines import Database
from rig.engines.sqlite import driver as sqlite
from rig.workloads import Work, ledger
from rig.workloads.operations import Content, Operation, Row, Table, Verb
from rig.workloads.oracle import Oracle

COUNT = 40
SEED = 3
MODELS = Work("ledger", SEED, COUNT).models
ORACLE = Oracle(ledger.TABLES, MODELS, partial(ledger.transaction, SEED))
DAMAGE = ("hole", "stale", "torn")

Draft = dict[str, dict[int, Row]]


def draft(content: Content) -> Draft:
    return {table: dict(rows) for table, rows in content.items()}


def put(content: Draft, table: str, key: int, row: Row | None) -> None:
    if row is None:
        content[table].pop(key, None)
    else:
        content[table][key] = row


def carry_out(content: Draft, operations: Iterable[Operation]) -> None:
    """Write rows as page writes would: regardless of what was there before."""
    for operation in operations:
        put(content, operation.table, operation.key, None if operation.verb is Verb.DELETE else operation.row)


def revert(content: Draft, operations: Iterable[Operation], model: Content) -> None:
    for operation in operations:
        put(content, operation.table, operation.key, model[operation.table].get(operation.key))


def prefix_of(content: Content, models: Sequence[Content] = MODELS) -> int | None:
    return max((count for count, model in enumerate(models) if model == content), default=None)


def lasting_operations(number: int, last: int) -> list[Operation]:
    """Return the operations of a transaction that the content after `last` transactions still shows."""
    before, after, content = MODELS[number - 1], MODELS[number], MODELS[last]
    return [
        operation
        for operation in ledger.transaction(SEED, number)
        for table, key in [(operation.table, operation.key)]
        if after[table].get(key) == content[table].get(key) != before[table].get(key)
    ]


def parts(operations: Sequence[Operation]) -> st.SearchStrategy[list[Operation]]:
    return st.lists(st.sampled_from(operations), min_size=1, unique=True)


@given(count=st.integers(0, COUNT))
def test_the_content_after_p_transactions_is_prefix_p(count: int) -> None:
    assert Finding(FindingKind.PREFIX, count) == ORACLE.judge_content(draft(MODELS[count]))


@settings(max_examples=100)
@given(count=st.integers(0, COUNT), data=st.data())
def test_a_content_with_one_row_changed_is_a_prefix_only_if_it_is_another_model(
    count: int, data: st.DataObject
) -> None:
    content = draft(MODELS[count])
    table = data.draw(st.sampled_from(sorted(content)))
    key = data.draw(st.integers(0, 2 * COUNT + 2))
    present = content[table].get(key)
    versions: list[Row | None] = list(dict.fromkeys(model[table].get(key) for model in MODELS))
    garbled = [(*present[:-1], f"{present[-1]}x")] if present else [(1, 1, "never written")]
    row = data.draw(st.sampled_from([None, *versions, *garbled]))
    assume(row != present)
    put(content, table, key, row)
    finding = ORACLE.judge_content(content)
    # At least four rows lie between two models of the ledger, so one changed row is never another model.
    assert (None, False) == (finding.recovered, finding.kind == "prefix")
    assert (row is not None and row not in versions) is (finding.kind == "foreign")
    assert finding.kind in (*DAMAGE, "foreign")
    assert f"{table}/{key} (nearest model {count}): expected" in finding.detail


def test_every_damage_that_the_oracle_names_is_a_verdict() -> None:
    for kind in (*DAMAGE, "foreign", "corrupt", "unopenable"):
        assert VerdictKind(kind).is_damage


@settings(max_examples=100)
@given(number=st.integers(1, COUNT), data=st.data())
def test_a_part_of_the_last_transaction_is_torn(number: int, data: st.DataObject) -> None:
    operations = ledger.transaction(SEED, number)
    landed = data.draw(parts(operations).filter(lambda part: len(part) < len(operations)))
    content = draft(MODELS[number - 1])
    carry_out(content, landed)
    finding = ORACLE.judge_content(content)
    assert "torn" == finding.kind
    assert f"transaction {number} is partly there" in finding.detail


def test_deletes_that_land_without_the_rest_of_their_transaction_are_torn() -> None:
    deletes = [operation for operation in ledger.transaction(SEED, 30) if operation.verb is Verb.DELETE]
    for landed in (deletes, deletes[:1]):
        content = draft(MODELS[29])
        carry_out(content, landed)
        finding = ORACLE.judge_content(content)
        assert ("torn", True) == (finding.kind, "transaction 30 " in finding.detail)


@settings(max_examples=100)
@given(numbers=st.tuples(st.integers(1, COUNT), st.integers(1, COUNT)).filter(lambda pair: pair[0] < pair[1]))
# The rows that transaction 6 inserts are deleted by 30: an absent row must not pass for a deleted one.
@example(numbers=(6, 7))
@example(numbers=(6, 12))
def test_a_transaction_missing_before_a_later_one_is_a_hole(numbers: tuple[int, int]) -> None:
    number, last = numbers
    content = draft(MODELS[number - 1])
    for later in range(number + 1, last + 1):
        carry_out(content, ledger.transaction(SEED, later))
    # If everything it wrote has since been overwritten or deleted, nothing is missing.
    assume(content != MODELS[last])
    finding = ORACLE.judge_content(content)
    if only_absent_rows_tell(number, last):
        assert "torn" == finding.kind
    else:
        assert ("hole", True) == (finding.kind, f"transaction {number} is missing before" in finding.detail)


def only_absent_rows_tell(number: int, last: int) -> bool:
    """Whether a lost transaction looks exactly like deletes of the next one, and is taken for these."""
    visible = lasting_operations(number, last)
    return number == last + 1 - ledger.ENTRY_LIFE and {operation.verb for operation in visible} == {Verb.INSERT}


@settings(max_examples=100)
@given(numbers=st.tuples(st.integers(1, COUNT), st.integers(1, COUNT)), data=st.data())
def test_a_part_of_an_earlier_transaction_undone_is_stale(numbers: tuple[int, int], data: st.DataObject) -> None:
    number, last = min(numbers), max(numbers)
    assume(number < last)
    operations = lasting_operations(number, last)
    assume(len(operations) > 1)
    undone = data.draw(parts(operations).filter(lambda part: len(part) < len(operations)))
    inserts_only = {operation.verb for operation in undone} == {Verb.INSERT}
    assume(not (inserts_only and number == last + 1 - ledger.ENTRY_LIFE))
    content = draft(MODELS[last])
    revert(content, undone, MODELS[number - 1])
    finding = ORACLE.judge_content(content)
    assert "stale" == finding.kind
    assert f"transaction {number} is partly undone before" in finding.detail


def test_a_hole_with_everything_overwritten_since_but_one_row_is_named_by_that_row() -> None:
    # Overwritten rows say nothing about the transaction, so it is visible only in the one row left.
    history = History(({1: "a"}, {1: "b", 2: "b", 3: "b"}, {1: "c", 2: "c"}))
    finding = history.oracle.judge_content({"t": {1: ("c",), 2: ("c",)}})
    assert "hole" == finding.kind
    assert "t/3 (nearest model 2): expected ('b',), found nothing" in finding.detail


def test_a_transaction_that_later_ones_overwrote_entirely_is_neither_missing_nor_undone() -> None:
    history = History(({1: "a", 2: "a", 3: "a"}, {1: "b", 2: "b"}, {1: "c", 2: "c"}, {1: "d", 3: "d"}))
    finding = history.oracle.judge_content({"t": {1: ("d",), 2: ("c",), 3: ("a",)}})
    assert ("torn", True) == (finding.kind, "transaction 3 " in finding.detail)


def test_a_row_of_the_setup_that_is_gone_is_stale_and_an_empty_database_is_a_hole() -> None:
    content = draft(MODELS[2])
    untouched = next(key for key, row in content["account"].items() if row == MODELS[0]["account"][key])
    del content["account"][untouched]
    finding = ORACLE.judge_content(content)
    assert ("stale", True) == (finding.kind, "transaction 0 " in finding.detail)
    assert "hole" == ORACLE.judge_content({"account": {}, "entry": {}}).kind


def test_a_row_under_the_key_of_another_is_foreign() -> None:
    content = draft(MODELS[5])
    content["account"][1] = content["account"][2]
    finding = ORACLE.judge_content(content)
    assert "foreign" == finding.kind
    assert "account/1 holds ('owner-2'" in finding.detail


# A history: the first entry is the setup; each further one writes values, or None to delete, under keys of one table.
Writes = dict[int, str | None]


@dataclass(frozen=True)
class History:
    writes: tuple[Writes, ...]

    @property
    def models(self) -> list[Draft]:
        content: Draft = {"t": {}}
        found = []
        for number in range(len(self.writes)):
            carry_out(content, self.transaction(number))
            found.append(draft(content))
        return found

    def transaction(self, number: int) -> tuple[Operation, ...]:
        return tuple(
            Operation(Verb.DELETE, "t", key) if value is None else Operation(Verb.UPDATE, "t", key, (value,))
            for key, value in self.writes[number].items()
        )

    @property
    def oracle(self) -> Oracle:
        return Oracle((Table("t", (("value", str),)),), tuple(self.models), self.transaction)


keys = st.integers(1, 4)
repeating = st.builds(
    lambda writes: History(tuple(writes)),
    st.lists(st.dictionaries(keys, st.sampled_from(["a", "b", None]), min_size=1), min_size=1, max_size=6),
)
contents = st.dictionaries(keys, st.sampled_from(["a", "b", "z"]))


@settings(max_examples=200)
@given(history=repeating, values=contents)
def test_whatever_the_history_a_content_is_a_prefix_iff_it_is_a_model_and_foreign_iff_a_row_is(
    history: History, values: dict[int, str]
) -> None:
    content = {"t": {key: (value,) for key, value in values.items()}}
    models = history.models
    finding = history.oracle.judge_content(content)
    assert prefix_of(content, models) == finding.recovered
    assert (prefix_of(content, models) is not None) is (finding.kind == "prefix")
    if finding.kind == "prefix":
        return
    is_foreign = any(all(model["t"].get(key) != (value,) for model in models) for key, value in values.items())
    assert is_foreign is (finding.kind == "foreign")
    assert finding.kind in (*DAMAGE, "foreign")


@st.composite
def told_apart(draw: st.DrawFn) -> tuple[History, dict[int, int]]:
    """Draw a history whose versions name their transaction, and for each key one of its versions, or -1 for absent."""
    written = draw(st.lists(st.sets(keys, min_size=1), min_size=1, max_size=6))
    history = History(tuple(dict.fromkeys(sorted(places), f"v{n}") for n, places in enumerate(written)))
    choices = {key: [-1, *(n for n, places in enumerate(written) if key in places)] for key in range(1, 5)}
    return history, {key: draw(st.sampled_from(choice)) for key, choice in choices.items()}


@settings(max_examples=200)
@given(case=told_apart())
def test_versions_that_tell_who_wrote_them_are_classified_word_by_word(case: tuple[History, dict[int, int]]) -> None:
    history, seen = case
    finding = history.oracle.judge_content({"t": {key: (f"v{n}",) for key, n in seen.items() if n >= 0}})
    top = max(0, *seen.values())
    undone = {n for n in range(top + 1) if any(seen[key] < n for key in history.writes[n])}
    visible = set(seen.values())
    expected = "torn"
    if not undone:
        expected = "prefix"
    elif undone - visible:
        expected = "hole"
    elif undone != {top}:
        expected = "stale"
    assert expected == finding.kind


@dataclass
class Shelf:
    """A database in a dictionary; methods named in `raises` raise."""

    rows: Content
    raises: tuple[str, ...] = ()
    complaints: list[str] = field(default_factory=list)
    closed: int = 0

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None: ...

    def commit(self, operations: Sequence[Operation]) -> None: ...

    def settings(self) -> dict[str, str]:
        return {}

    def content(self, tables: Sequence[Table]) -> Content:
        self._maybe_raise("content")
        return {table.name: self.rows[table.name] for table in tables}

    def problems(self) -> list[str]:
        self._maybe_raise("problems")
        return self.complaints

    def close(self) -> None:
        self.closed += 1
        self._maybe_raise("close")

    def _maybe_raise(self, name: str) -> None:
        if name in self.raises:
            raise OSError(5, f"{name} went wrong")


def opener(shelf: Shelf) -> Callable[[], Database]:
    return lambda: shelf


@pytest.mark.parametrize("raises", [("problems",), ("content",), ("close",), ("problems", "close")])
def test_whatever_the_engine_raises_is_corrupt_in_its_words_and_it_is_closed_once(raises: tuple[str, ...]) -> None:
    shelf = Shelf(MODELS[3], raises)
    finding = ORACLE.judge(opener(shelf))
    assert ("corrupt", None) == (finding.kind, finding.recovered)
    assert all(f"OSError: [Errno 5] {name} went wrong" in finding.detail for name in raises)
    assert 1 == shelf.closed


def test_a_database_that_complains_is_corrupt_even_if_its_content_is_a_model() -> None:
    assert Finding(FindingKind.PREFIX, 3) == ORACLE.judge(opener(Shelf(MODELS[3])))
    shelf = Shelf(MODELS[3], complaints=["row 7 missing from index", "wrong # of entries"])
    assert Finding(FindingKind.CORRUPT, None, "row 7 missing from index; wrong # of entries") == ORACLE.judge(
        opener(shelf)
    )


def test_a_database_that_cannot_be_opened_is_unopenable_in_the_engines_words(tmp_path: Path) -> None:
    finding = ORACLE.judge(lambda: sqlite.open_database(str(tmp_path / "no such folder"), {}))
    assert Finding(FindingKind.UNOPENABLE, None, "OperationalError: unable to open database file") == finding


@settings(max_examples=40)
@given(data=st.data())
def test_a_real_database_with_damaged_bytes_is_judged_and_never_a_wrong_prefix(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    with_rows = sqlite.open_database(str(folder), {"journal_mode": "off", "synchronous": "off"})
    with_rows.create(ledger.TABLES, ledger.initial(SEED))
    with_rows.commit(ledger.transaction(SEED, 1))
    with_rows.close()
    path = folder / "test.db"
    image = bytearray(path.read_bytes())
    where = data.draw(st.one_of(st.integers(0, 200), st.integers(0, len(image) - 1)))
    image[where : where + 8] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(image[: data.draw(st.one_of(st.just(len(image)), st.integers(0, len(image))))])
    finding = ORACLE.judge(partial(sqlite.open_database, str(folder), {"journal_mode": "delete"}))
    assert finding.kind in ("prefix", *DAMAGE, "foreign", "corrupt", "unopenable")
    assert (1 if finding.kind == "prefix" else None) == finding.recovered
