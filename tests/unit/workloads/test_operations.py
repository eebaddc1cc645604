"""The language of operations against a plain model: savepoints, rollbacks, tables that come and go."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.engines.sqlite import driver as sqlite
from rig.workloads.operations import Draft, Operation, Skill, Table, Verb, apply, effective, models, within

FIRST = Table("first", (("value", str),))
LATER = Table("later", (("value", str),), index="value")
ROWS = (Verb.INSERT, Verb.UPDATE, Verb.DELETE)
QUICK = {"journal_mode": "memory", "synchronous": "off", "page_size": "512", "cache_size": "3"}


@dataclass
class There:
    """What is there while a history is drawn: the keys of each table, and whether the first one has an index."""

    keys: dict[str, set[int]] = field(default_factory=lambda: {"first": set()})
    has_index: bool = False

    def copy(self) -> There:
        return copy.deepcopy(self)

    def change(self, draw: st.DrawFn) -> Operation:
        step = draw(st.sampled_from(["row", "row", "row", "table", "index"]))
        if step == "table":
            is_there = self.keys.pop("later", None) is not None
            if not is_there:
                self.keys["later"] = set()
            return Operation(Verb.DROP_TABLE if is_there else Verb.MAKE_TABLE, "later", made=LATER)
        if step == "index":
            self.has_index = not self.has_index
            verb = Verb.MAKE_INDEX if self.has_index else Verb.DROP_INDEX
            return Operation(verb, "first", made=Table("first", FIRST.columns, index="value"))
        table, key = draw(st.sampled_from(sorted(self.keys))), draw(st.integers(1, 5))
        verb = draw(st.sampled_from((Verb.UPDATE, Verb.DELETE))) if key in self.keys[table] else Verb.INSERT
        self.keys[table] ^= {key} if verb is not Verb.UPDATE else set()
        # Empty, short, and longer than a page of SQLite with these settings.
        row = () if verb is Verb.DELETE else (draw(st.sampled_from(["", "a", "b" * 700, "c" * 1500])),)
        return Operation(verb, table, key, row)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Operation]]:
    """Transactions that fit their content, with nested savepoints, and some that are rolled back."""
    there, made = There(), []
    for _ in range(draw(st.integers(1, 4))):
        operations: list[Operation] = []
        before, stack = there.copy(), list[There]()
        for _ in range(draw(st.integers(1, 8))):
            verb = draw(st.sampled_from([None, None, None, Verb.SAVEPOINT, Verb.RELEASE, Verb.ROLL_BACK_TO]))
            if verb is None:
                operations.append(there.change(draw))
            elif verb is Verb.SAVEPOINT or stack:
                operations.append(Operation(verb))
                if verb is Verb.SAVEPOINT:
                    stack.append(there.copy())
                else:
                    there = stack[-1].copy() if verb is Verb.ROLL_BACK_TO else there
                    stack = stack[:-1] if verb is Verb.RELEASE else stack
        if draw(st.integers(0, 4)) == 0:
            operations.append(Operation(Verb.ROLL_BACK))
            there = before
        made.append(operations)
    return made


def plainly(content: Draft, operations: list[Operation]) -> Draft:
    """Carry out a transaction on a plain dict, with a copy of everything for each savepoint."""
    before, found, stack = copy.deepcopy(content), copy.deepcopy(content), []
    for one in operations:
        match one.verb:
            case Verb.SAVEPOINT:
                stack.append(copy.deepcopy(found))
            case Verb.RELEASE:
                stack.pop()
            case Verb.ROLL_BACK_TO:
                found = copy.deepcopy(stack[-1])
            case Verb.ROLL_BACK:
                found = before
            case Verb.MAKE_TABLE:
                found[one.table] = {}
            case Verb.DROP_TABLE:
                del found[one.table]
            case Verb.DELETE:
                del found[one.table][one.key]
            case Verb.INSERT | Verb.UPDATE:
                found[one.table][one.key] = one.row
    return found


@settings(max_examples=200)
@given(history=histories())
def test_what_is_applied_and_what_is_effective_are_what_a_plain_model_says(history: list[list[Operation]]) -> None:
    content: Draft = {"first": {}}
    for operations in history:
        expected = plainly(content, operations)
        left: Draft = copy.deepcopy(content)
        apply(left, effective(operations))
        assert expected == left
        assert {one.verb for one in effective(operations)}.isdisjoint({Verb.SAVEPOINT, Verb.RELEASE, Verb.ROLL_BACK_TO})
        apply(content, operations)
        assert expected == content


@settings(max_examples=60)
@given(history=histories())
def test_a_database_holds_what_the_models_say_after_every_transaction(
    history: list[list[Operation]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = sqlite.open_database(str(tmp_path_factory.mktemp("database")), QUICK)
    database.create((FIRST,), ())
    expected = models((FIRST,), (), lambda number: history[number - 1], len(history))
    for number, operations in enumerate(history, 1):
        database.commit(operations)
        assert expected[number] == database.content((FIRST, LATER))
        assert [] == database.problems()
    database.close()


@settings(max_examples=100)
@given(history=histories(), skills=st.sets(st.sampled_from(Skill)))
def test_an_engine_that_lacks_skills_gets_transactions_that_fit_and_use_none_of_them(
    history: list[list[Operation]], skills: set[Skill]
) -> None:
    content: Draft = {"first": {}}
    used: set[Verb] = set()
    for operations in history:
        reduced = within(operations, skills, (FIRST,))
        apply(content, reduced)
        used |= {one.verb for one in reduced}
    allowed = {*ROWS}
    allowed |= {Verb.MAKE_TABLE, Verb.DROP_TABLE, Verb.MAKE_INDEX, Verb.DROP_INDEX} if Skill.SCHEMA in skills else set()
    allowed |= {Verb.SAVEPOINT, Verb.RELEASE, Verb.ROLL_BACK_TO} if Skill.SAVEPOINTS in skills else set()
    allowed |= {Verb.ROLL_BACK} if Skill.ROLLBACK in skills else set()
    assert used <= allowed
    if skills == set(Skill):
        assert [tuple(operations) for operations in history] == [within(one, skills, (FIRST,)) for one in history]


def test_whatever_skills_are_lacking_the_rows_of_the_first_tables_end_as_they_would() -> None:
    insert, change = Operation(Verb.INSERT, "first", 1, ("a",)), Operation(Verb.UPDATE, "first", 1, ("b",))
    operations = (
        insert, Operation(Verb.MAKE_TABLE, "later", made=LATER), Operation(Verb.SAVEPOINT), change,
        Operation(Verb.INSERT, "later", 1, ("c",)), Operation(Verb.ROLL_BACK_TO), Operation(Verb.RELEASE),
    )  # fmt: skip
    assert (insert,) == within(operations, (), (FIRST,))
    assert operations[:2] == within(operations, {Skill.SCHEMA}, (FIRST,))
    ended = (*operations, Operation(Verb.ROLL_BACK))
    assert () == within(ended, {Skill.SAVEPOINTS, Skill.SCHEMA}, (FIRST,))
    assert (insert, ended[-1]) == within(ended, {Skill.ROLLBACK}, (FIRST,))


@pytest.mark.parametrize(
    "operations",
    [
        (Operation(Verb.MAKE_TABLE, "first", made=FIRST),),
        (Operation(Verb.DROP_TABLE, "later", made=LATER),),
        (Operation(Verb.INSERT, "later", 1, ("a",)),),
        (Operation(Verb.RELEASE),),
        (Operation(Verb.SAVEPOINT), Operation(Verb.RELEASE), Operation(Verb.ROLL_BACK_TO)),
    ],
)
def test_what_does_not_fit_is_an_error_and_changes_nothing(operations: tuple[Operation, ...]) -> None:
    content: Draft = {"first": {1: ("kept",)}}
    with pytest.raises(ValueError, match=r"does not fit the content|there is no savepoint"):
        apply(content, (Operation(Verb.DELETE, "first", 1), *operations))
    assert {"first": {1: ("kept",)}} == content
