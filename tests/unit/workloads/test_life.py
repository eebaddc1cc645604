"""The walks `life` and `rough`: pure functions of a seed, that reach everything they name, on a real database too."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite.spec import SPEC
from rig.workloads import Work, life, rough
from rig.workloads.events import EventKind
from rig.workloads.operations import Draft, Operation, Skill, Verb, apply

COUNT = 40
seeds = st.integers(0, 2**31)


def verbs(operations: tuple[Operation, ...]) -> list[Verb]:
    return [one.verb for one in operations]


@settings(max_examples=10)
@given(seed=seeds, number=st.integers(1, COUNT))
def test_a_transaction_and_its_events_follow_from_seed_and_number_alone(seed: int, number: int) -> None:
    first = life.transaction(seed, number), life.events(seed, number)
    life._steps.cache_clear()
    # Asked for in another order, after another walk.
    life.transaction(seed + 1, COUNT)
    for other in range(number, 0, -1):
        life.events(seed, other)
    assert first == (life.transaction(seed, number), life.events(seed, number))


@settings(max_examples=15)
@given(seed=seeds, shown=st.lists(st.integers(0, COUNT), min_size=1, max_size=2))
def test_a_later_life_goes_on_from_what_was_left_and_repeats_nothing(seed: int, shown: list[int]) -> None:
    """The model of a walk whose transactions do not fit what was there is an error."""
    first, later = Work("life", seed, COUNT), Work("life", seed, COUNT, lives=tuple(shown))
    left = min(shown)
    assert first.models[: left + 1] == later.models[: left + 1]
    # What is made before anything is in the database is the same in all lives.
    begin = max(left, first.creates)
    assert not {str(model) for model in first.models[begin + 1 :]} & {str(model) for model in later.models[begin + 1 :]}
    assert len({str(model) for model in later.models}) == COUNT + 1


def test_another_process_with_other_hashes_walks_the_same_way() -> None:
    code = "from rig.workloads import life; print([(life.transaction(3, n), life.events(3, n)) for n in range(1, 61)])"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert [str([(life.transaction(3, n), life.events(3, n)) for n in range(1, 61)]) + "\n"] == list(said)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, skills=st.sets(st.sampled_from(Skill)), name=st.sampled_from(["life", "rough"]))
def test_no_two_contents_are_equal_whatever_the_skills_and_no_event_changes_any(
    seed: int, skills: set[Skill], name: str
) -> None:
    work = Work(name, seed, COUNT, skills)
    for earlier, later in itertools.combinations(work.models, 2):
        assert earlier != later
    for number in range(1, COUNT + 1):
        for event in work.events(number):
            content: Draft = {table: dict(rows) for table, rows in work.models[number - 1].items()}
            apply(content, event.operations)
            assert work.models[number - 1] == content
            assert (event.kind is EventKind.ROLLBACK) or not event.operations


@settings(max_examples=10)
@given(seed=seeds)
def test_a_quick_run_reaches_every_kind_of_transaction_and_of_event(seed: int) -> None:
    operations = [life.transaction(seed, number) for number in range(1, COUNT + 1)]
    assert set(Verb) - {Verb.ROLL_BACK} == {one.verb for each in operations for one in each}
    events = Counter(event.kind for number in range(1, COUNT + 1) for event in life.events(seed, number))
    assert set(EventKind) == set(events)
    # Each variant of SQLite's comes up.
    for kind, variants in SPEC.events.items():
        draws = {event.draw for n in range(1, COUNT + 1) for event in life.events(seed, n) if event.kind is kind}
        if kind in (EventKind.CHECKPOINT, EventKind.VACUUM, EventKind.CHANGE):
            assert len(variants) == len({draw % len(variants) for draw in draws}), kind
    sizes = {len(str(one.row[-1])) for each in operations for one in each if one.row}
    assert {0, max(sizes)} <= sizes
    assert int(SPEC.tuning["page_size"]) < max(sizes)
    assert any(len(each) == 1 for each in operations)
    # No reader holds a snapshot when the database has to be alone.
    held = False
    for event in (event for n in range(1, COUNT + 1) for event in life.events(seed, n)):
        assert not (held and event.kind in (EventKind.REOPEN, EventKind.OTHER_PROCESS, EventKind.CHANGE))
        held = {EventKind.HOLD: True, EventKind.DROP: False}.get(event.kind, held)


def test_only_a_long_run_grows_a_log_past_5000_pages() -> None:
    page_bytes = int(SPEC.tuning["page_size"])
    written = [sum(one.user_bytes for one in life.transaction(1, number)) for number in range(1, 121)]
    assert [56 - 1, 116 - 1] == [number for number, size in enumerate(written, 1) if size > 5000 * page_bytes]
    assert max(written[:COUNT]) < 50 * page_bytes
    assert max(len(str(row[-1])) for row in Work("life", 1, 60).models[60]["long"].values()) < 20_000


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_only_undo_rolls_back_to_a_savepoint_what_the_cache_does_not_hold(journal_mode: str) -> None:
    tuning = SPEC.tuning_under({"journal_mode": journal_mode, "synchronous": "full"}, "life")
    page_bytes, cache_pages = (int(tuning[name]) for name in ("page_size", "cache_size"))

    def undone(operations: tuple[Operation, ...]) -> int:
        size = found = 0
        for one in operations:
            size = 0 if one.verb is Verb.SAVEPOINT else size + one.user_bytes
            found = max(found, size) if one.verb is Verb.ROLL_BACK_TO else found
        return found

    sizes = [[undone(walk.transaction(1, n)) for n in range(1, COUNT + 1)] for walk in (life, rough)]
    assert max(sizes[0]) < page_bytes * cache_pages < max(sizes[1])


@pytest.mark.parametrize("journal_mode", ["delete", "truncate", "persist", "wal"])
def test_a_database_lives_it_all_and_holds_what_the_models_say(journal_mode: str, tmp_path: Path) -> None:
    own = {"journal_mode": journal_mode, "synchronous": "off"}
    settings_ = {**SPEC.tuning_under(own, "life"), **own}
    work = Work("life", 2, COUNT, SPEC.skills)
    database = sqlite.open_database(str(tmp_path), settings_)
    database.create(work.first_tables, work.initial)
    assert settings_.items() <= database.settings().items()
    skipped = Counter[str]()
    for number in range(2, COUNT + 1):
        for event in work.events(number):
            variants = SPEC.events.get(event.kind, ())
            if event.operations:
                database.commit(event.operations)
            elif event.kind in (EventKind.CHECKPOINT, EventKind.VACUUM, EventKind.CHANGE):
                skipped[event.kind] += not database.happen(event.kind, variants[event.draw % len(variants)])
            elif event.kind is EventKind.REOPEN:
                database.close()
                database = sqlite.open_database(str(tmp_path), settings_)
            assert work.models[number - 1] == database.content(work.tables)
        database.commit(work.transaction(number))
        assert work.models[number] == database.content(work.tables)
    assert [] == database.problems()
    assert settings_.items() <= database.settings().items()
    assert (journal_mode != "wal") is (skipped[EventKind.CHECKPOINT] > 0)
    assert 0 == skipped[EventKind.VACUUM] + skipped[EventKind.CHANGE]
    database.close()


def test_what_another_process_left_is_moved_before_anything_else_is_written() -> None:
    """A checkpoint of what a recovery has found is another case than one of what was just committed."""
    kinds = [[event.kind for event in life.events(1, number)] for number in range(1, 121)]
    after = [kinds[place + 1][:1] for place, happened in enumerate(kinds[:-1]) if EventKind.OTHER_PROCESS in happened]
    moved = [kind for kind in after if kind == [EventKind.CHECKPOINT]]
    assert len(after) / 3 < len(moved) < len(after)
