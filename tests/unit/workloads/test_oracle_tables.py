"""The oracle where tables come and go: whether one exists is content too, and any mixture of moments is judged."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.workloads import Work
from rig.workloads.operations import Content, Operation, Row, Table, Verb, models
from rig.workloads.oracle import Oracle
from tests.unit.workloads.test_oracle import COUNT, DAMAGE, SEED, draft, prefix_of, put

LIFE = Work("life", SEED, COUNT)
LIFE_ORACLE = LIFE.oracle()
# A history of two tables; the second comes and goes: each entry writes rows of "t", and makes or drops "u".
LATER = Table("u", (("value", str),))


def turning(made: list[bool | None]) -> tuple[list[Content], Callable[[int], tuple[Operation, ...]]]:
    """Return the models and transactions of a history in which `made` says what becomes of the second table."""
    transactions: list[tuple[Operation, ...]] = []
    for number, turn in enumerate(made, 1):
        operations = [Operation(Verb.INSERT, "t", number, (f"t{number}",))]
        if turn is True:
            operations += [Operation(Verb.MAKE_TABLE, "u", made=LATER)]
            operations += [Operation(Verb.INSERT, "u", key, (f"u{number}",)) for key in range(number % 3)]
        elif turn is False:
            operations.append(Operation(Verb.DROP_TABLE, "u", made=LATER))
        transactions.append(tuple(operations))
    found = models((Table("t", (("value", str),)),), (), lambda number: transactions[number - 1], len(made))
    return list(found), lambda number: transactions[number - 1]


@st.composite
def turns(draw: st.DrawFn) -> list[bool | None]:
    is_there, found = False, list[bool | None]()
    for _ in range(draw(st.integers(1, 6))):
        turn = draw(st.sampled_from([None, not is_there]))
        is_there = is_there if turn is None else turn
        found.append(turn)
    return found


@settings(max_examples=300)
@given(made=turns(), data=st.data())
def test_a_table_that_comes_and_goes_is_content_too_and_any_mixture_is_judged(
    made: list[bool | None], data: st.DataObject
) -> None:
    models_, transaction = turning(made)
    oracle = Oracle((Table("t", (("value", str),)), LATER), tuple(models_), transaction)
    # Rows and tables of different models, side by side.
    sources = data.draw(st.lists(st.sampled_from(range(len(models_))), min_size=2, max_size=2))
    content = {
        name: dict(models_[source][name])
        for name, source in zip(("t", "u"), sources, strict=True)
        if name in models_[source]
    }
    if data.draw(st.booleans()):
        content["u"] = {}
    finding = oracle.judge_content(content)
    assert prefix_of(content, models_) == finding.recovered
    assert (finding.recovered is None) is (finding.kind in (*DAMAGE, "foreign"))


def test_a_missing_or_an_empty_table_is_named() -> None:
    models_, transaction = turning([None, None, True, None])
    oracle = Oracle((Table("t", (("value", str),)), LATER), tuple(models_), transaction)
    without = {"t": dict(models_[4]["t"])}
    finding = oracle.judge_content(without)
    assert ("stale", True) == (finding.kind, "u (nearest model 4): expected ('the table exists',)" in finding.detail)
    early = {"t": dict(models_[2]["t"]), "u": {}}
    assert "torn" == oracle.judge_content(early).kind
    assert "transaction 3 is partly there; u (nearest model 2): expected nothing" in oracle.judge_content(early).detail
    nothing: dict[str, dict[int, Row]] = {}
    assert oracle.judge_content(nothing).kind in DAMAGE


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, COUNT), other=st.integers(0, COUNT), data=st.data())
def test_a_life_with_rows_of_another_moment_is_damage_and_never_a_prefix(
    count: int, other: int, data: st.DataObject
) -> None:
    work = LIFE
    content = draft(work.models[count])
    places = [
        (table, key)
        for table in content.keys() & work.models[other].keys()
        for key in content[table].keys() | work.models[other][table].keys()
        if content[table].get(key) != work.models[other][table].get(key)
    ]
    assume(places)
    table, key = data.draw(st.sampled_from(sorted(places)))
    put(content, table, key, work.models[other][table].get(key))
    finding = LIFE_ORACLE.judge_content(content)
    assert prefix_of(content, work.models) == finding.recovered
    assert finding.recovered is not None or finding.kind in DAMAGE


def test_what_a_transaction_rolled_back_to_a_savepoint_it_has_not_written() -> None:
    insert, change = Operation(Verb.INSERT, "t", 1, ("a",)), Operation(Verb.UPDATE, "t", 1, ("b",))
    undone = (Operation(Verb.SAVEPOINT), change, Operation(Verb.ROLL_BACK_TO), Operation(Verb.INSERT, "t", 2, ("c",)))
    transactions = ((insert,), undone, (Operation(Verb.INSERT, "t", 3, ("d",)),))
    table = Table("t", (("value", str),))
    models_ = models((table,), (), lambda number: transactions[number - 1], 3)
    oracle = Oracle((table,), models_, lambda number: transactions[number - 1])
    # The row that was rolled back is there as before, which does not speak for transaction 2: all of that is missing.
    finding = oracle.judge_content({"t": {1: ("a",), 3: ("d",)}})
    assert ("hole", True) == (finding.kind, "transaction 2 is missing" in finding.detail)
