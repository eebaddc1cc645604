"""The ledger and its operations: pure functions of a seed; every transaction is visible in several tables."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.workloads import Work, ledger, workload_named
from rig.workloads.operations import Draft, Operation, Row, Skill, Verb, apply

COUNT = 60
seeds = st.integers(0, 2**31)


@settings(max_examples=10)
@given(seed=seeds, number=st.integers(1, COUNT))
def test_a_transaction_follows_from_seed_and_number_alone(seed: int, number: int) -> None:
    models = Work("ledger", seed, number).models
    content = {table: dict(rows) for table, rows in models[number - 1].items()}
    apply(content, ledger.transaction(seed, number))
    assert models[number] == content
    assert models == Work("ledger", seed, COUNT).models[: number + 1]


def test_another_seed_or_number_is_another_transaction() -> None:
    made = [ledger.transaction(seed, number) for seed in range(5) for number in range(1, 20)]
    assert len(made) == len(set(made))


@settings(max_examples=5)
@given(seed=seeds)
def test_no_two_models_are_equal_and_each_transaction_changes_two_tables(seed: int) -> None:
    models = Work("ledger", seed, COUNT).models
    for earlier, later in itertools.combinations(models, 2):
        assert earlier != later
    for before, after in itertools.pairwise(models):
        changed = Counter(
            table
            for table, rows in after.items()
            for key in rows.keys() | before[table].keys()
            if rows.get(key) != before[table].get(key)
        )
        assert changed["account"] == 2
        assert changed["entry"] in (2, 4)


def test_an_updated_row_tells_which_transaction_wrote_it() -> None:
    column = [name for name, _ in ledger.TABLES[0].columns].index("changed_by")
    for number in (1, 25, COUNT):
        updates = [o for o in ledger.transaction(1, number) if o.verb is Verb.UPDATE]
        assert [number, number] == [operation.row[column] for operation in updates]


def test_the_size_of_the_database_settles() -> None:
    sizes = [len(model["entry"]) for model in Work("ledger", 1, COUNT).models]
    assert 2 * ledger.ENTRY_LIFE == max(sizes) == sizes[-1]
    assert all(ledger.ACCOUNT_COUNT == len(model["account"]) for model in Work("ledger", 1, 3).models)


def test_a_row_fits_the_columns_of_its_table_and_refers_to_a_row_that_is_there() -> None:
    columns = {table.name: [kind for _, kind in table.columns] for table in ledger.TABLES}
    for model in Work("ledger", 1, COUNT).models:
        for table, rows in model.items():
            assert all([type(value) for value in row] == columns[table] for row in rows.values())
        assert all(row[0] in model["account"] for row in model["entry"].values())


def test_one_transaction_touches_no_row_twice() -> None:
    for number in range(1, COUNT):
        places = [(operation.table, operation.key) for operation in ledger.transaction(1, number)]
        assert len(places) == len(set(places))


@pytest.mark.parametrize(
    "operation",
    [
        Operation(Verb.INSERT, "t", 1, ("again",)),
        Operation(Verb.UPDATE, "t", 2, ("nothing to update",)),
        Operation(Verb.DELETE, "t", 2),
    ],
)
def test_an_operation_that_does_not_fit_the_content_is_an_error(operation: Operation) -> None:
    content: dict[str, dict[int, Row]] = {"t": {1: ("old",)}}
    with pytest.raises(ValueError, match=f"{operation.verb} of t/{operation.key}"):
        apply(content, (operation,))
    assert {"t": {1: ("old",)}} == content


def test_operations_do_what_their_verbs_say() -> None:
    content: dict[str, dict[int, Row]] = {"t": {1: ("old",), 2: ("gone",)}}
    insert, update = Operation(Verb.INSERT, "t", 3, ("new",)), Operation(Verb.UPDATE, "t", 1, ("changed",))
    apply(content, (insert, update, Operation(Verb.DELETE, "t", 2)))
    assert {"t": {1: ("changed",), 3: ("new",)}} == content


def test_user_bytes_are_the_key_and_the_values() -> None:
    assert 8 + 8 + 5 == Operation(Verb.INSERT, "t", 1, (7, "hello")).user_bytes
    assert 8 == Operation(Verb.DELETE, "t", 1).user_bytes


@pytest.mark.parametrize("skills", [set(), set(Skill)])
def test_making_the_database_is_the_first_transaction_of_creation_and_of_a_life(skills: set[Skill]) -> None:
    for name in ("creation", "life", "rough"):
        work, plain = Work(name, 1, 12, skills), workload_named(name)
        assert work.creates
        # Whatever the engine can do: it makes its first tables by itself.
        content: Draft = {table.name: {} for table in plain.TABLES}
        apply(content, plain.initial(1))
        assert ({}, content) == work.models[:2]
        assert () == work.events(1)
        assert {Verb.MAKE_TABLE, Verb.INSERT} == {one.verb for one in work.transaction(1)}
    assert Work("creation", 1, 12).models[1:] == Work("ledger", 1, 11).models
    assert not Work("ledger", 1, 1).creates


def test_a_database_that_was_not_made_is_no_transaction_and_half_of_one_is_damaged() -> None:
    work = Work("creation", 1, 3)
    oracle = work.oracle()
    assert Finding(FindingKind.PREFIX, 0) == oracle.judge_content({})
    assert Finding(FindingKind.PREFIX, 1) == oracle.judge_content(work.models[1])
    assert FindingKind.TORN is oracle.judge_content({**work.models[1], "account": {}}).kind
    half = {"account": work.models[1]["account"]}
    assert FindingKind.TORN is oracle.judge_content(half).kind
    assert FindingKind.STALE is oracle.judge_content({"account": {}, "entry": work.models[3]["entry"]}).kind
