"""The events of a life on a real database: no content changes, each has its marks, and what is lacking is named."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.engines.sqlite import situations as of_sqlite
from rig.engines.sqlite.driver import SqliteDatabase
from rig.engines.sqlite.spec import SPEC
from rig.faults import Mark
from rig.guest.programs import connections as of_guest
from rig.guest.programs.connections import Connections
from rig.guest.site import Site
from rig.planning import matrix
from rig.recordings.timeline import Timeline
from rig.workloads import situations
from rig.workloads.events import Event, EventKind

ROOT = Path(__file__).resolve().parents[4]
COUNT = 40
LIFE = matrix.configure(matrix.select(["sqlite-ext4-*.life_powercut"]), matrix.profile("quick"))


class Marks:
    """A log of marks, as the write log has them."""

    def __init__(self) -> None:
        self.found: list[Mark] = []
        self._times = itertools.count(1)

    def __call__(self, text: str) -> None:
        self.found.append(Mark(len(self.found), f"{text}-{next(self._times)}"))


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint waits for a reader that no other thread will end, by default five seconds."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.05))


@pytest.fixture(autouse=True)
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note a sync of all file systems instead of making it: here it would be one of the host."""
    made: list[str] = []
    monkeypatch.setattr(of_guest, "_sync_apart", lambda: made.append("sync"))
    return made


@pytest.fixture
def appendlog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    """A scenario of an engine that knows rows and nothing else."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "appendlog"))
    like = next(one for one in LIFE if one.settings_name == "wal_full.life")
    yield replace(like, engine="appendlog", engine_module="appendlog", settings={"sync": "never"}, tuning={})
    for name in [name for name in sys.modules if name.partition(".")[0] == "appendlog"]:
        del sys.modules[name]


def connection_of(connections: Connections) -> sqlite3.Connection:
    """Return Python's own connection, over which the database was made."""
    assert isinstance(connections.database, SqliteDatabase)
    found = connections.database._connection
    assert isinstance(found, sqlite3.Connection)
    return found


def live(scenario: Scenario, folder: Path) -> tuple[Connections, Timeline, Finding]:
    """Carry out a workload as the guest does, without its pauses; judge what is left after the close."""
    site, mark = Site(scenario.orders, str(folder)), Marks()
    work = site.work
    connections = Connections(site, mark, lambda _: None)
    mark("setup")
    for number in range(1, COUNT + 1):
        for event in work.events(number):
            connections.happen(event)
        mark(f"begin-{number}")
        if number == 1:
            connections.create()
        else:
            connections.commit(work.transaction(number))
        mark(f"ack-{number}")
        connections.note_acknowledgement()
    mark("end")
    connections.close()
    return connections, Timeline(mark.found), work.oracle().judge(site.open_database)


@pytest.mark.parametrize("scenario", LIFE, ids=lambda one: one.settings_name)
def test_a_life_leaves_what_its_transactions_say_and_marks_what_happened(scenario: Scenario, tmp_path: Path) -> None:
    connections, timeline, finding = live(scenario, tmp_path)
    assert Finding(FindingKind.PREFIX, COUNT) == finding
    assert COUNT == len(timeline.acks)
    numbers = [moment.number for moment in timeline.moments if moment.kind == "event"]
    assert list(range(1, len(numbers) + 1)) == numbers == [m.number for m in timeline.moments if m.kind == "done"]
    happened = Counter(
        word.split()[0] for mark, _, word in connections.reached if mark == "done" and word.split()[0] in set(EventKind)
    )
    assert happened.total() + connections.skipped.total() == len(numbers)
    in_wal = scenario.settings["journal_mode"] == "wal"
    needs_wal = {EventKind.CHECKPOINT, EventKind.HOLD, EventKind.DROP}
    assert set(EventKind) - (set() if in_wal else needs_wal) == set(happened)
    assert in_wal or needs_wal == {word.split()[0] for word in connections.skipped}
    words = [word for _, _, word in connections.reached]
    # What another process left was opened again.
    assert happened[EventKind.OTHER_PROCESS] == words.count(situations.AFTER_ANOTHER) > 0
    named = {*situations.OF_TRANSACTIONS, *situations.of_events(SPEC.events), *SPEC.situations}
    assert named >= set(words) >= set(situations.OF_TRANSACTIONS)
    # Every word has a place in the log.
    assert all(first < last for first, last in (timeline.span(mark, number) for mark, number, _ in connections.reached))


def begun(settings: str, folder: Path) -> tuple[Site, Connections]:
    """Return the connections of a life whose database was made, and its site."""
    scenario = next(one for one in LIFE if one.settings_name == settings)
    site = Site(scenario.orders, str(folder))
    connections = Connections(site, lambda _: None, lambda _: None)
    connections.create()
    return site, connections


def test_an_engine_that_knows_rows_alone_skips_the_other_events_and_says_so(
    appendlog: Scenario, tmp_path: Path
) -> None:
    connections, _, finding = live(appendlog, tmp_path)
    assert Finding(FindingKind.PREFIX, COUNT) == finding
    able = {EventKind.IDLE, EventKind.REOPEN, EventKind.OTHER_PROCESS}
    assert able == {word.split()[0] for mark, _, word in connections.reached if mark == "done"}
    assert set(EventKind) - able == set(connections.skipped)


def test_another_connection_and_another_process_commit_and_the_first_one_sees_it(tmp_path: Path) -> None:
    scenario = next(one for one in LIFE if one.settings_name == "delete_full.life")
    site = Site(scenario.orders, str(tmp_path))
    work = site.work
    connections = Connections(site, lambda _: None, lambda _: None)
    connections.create()
    database = connections.database
    connections.happen(Event(EventKind.OTHER_CONNECTION))
    connections.commit(work.transaction(2))
    assert work.models[2] == database.content(work.tables)
    connections.happen(Event(EventKind.OTHER_PROCESS))
    # Closed by every connection of this process.
    with pytest.raises(Exception, match="closed"):
        database.content(work.tables)
    connections.commit(work.transaction(3))
    connections.note_acknowledgement()
    connections.commit(work.transaction(4))
    connections.close()
    assert Finding(FindingKind.PREFIX, 4) == work.oracle().judge(site.open_database)


def test_another_program_syncs_before_the_last_operation_of_the_next_transaction_and_of_no_other(
    tmp_path: Path, syncs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, connections = begun("delete_full.life", tmp_path)
    monkeypatch.setattr(SqliteDatabase, "commit", lambda _, operations: syncs.extend(one.verb for one in operations))
    *_, last = verbs = [one.verb for one in site.work.transaction(2)]
    connections.happen(Event(EventKind.SYNC))
    connections.commit(site.work.transaction(2))
    assert [*verbs[:-1], "sync", last] == syncs
    syncs.clear()
    connections.commit(site.work.transaction(2))
    assert verbs == syncs
    connections.close()


def test_another_program_syncs_in_the_middle_of_what_is_rolled_back(tmp_path: Path, syncs: list[str]) -> None:
    site, connections = begun("delete_full.life", tmp_path)
    work = site.work
    pairs = {number: list(pairwise(work.events(number))) for number in range(2, 60)}
    rolled_back = [EventKind.SYNC, EventKind.ROLLBACK]
    number, undone = next(
        (number, pair)
        for number, found in pairs.items()
        for pair in found
        if rolled_back == [event.kind for event in pair]
    )
    for before in range(2, number):
        connections.commit(work.transaction(before))
    for event in undone:
        connections.happen(event)
    assert ["sync"] == syncs
    connections.close()


def test_a_second_connection_takes_turns_with_the_first_until_it_is_closed(tmp_path: Path) -> None:
    site, connections = begun("wal_full.life", tmp_path)
    work = site.work
    first = connection_of(connections)

    def commits(number: int) -> bool:
        """Whether the first connection committed a transaction: only it counts its own changes."""
        before = first.total_changes
        connections.commit(work.transaction(number))
        return first.total_changes > before

    assert [True, True] == [commits(2), commits(3)]
    connections.happen(Event(EventKind.OTHER_CONNECTION))
    assert [False, True, False, True] == [commits(number) for number in range(4, 8)]
    connections.happen(Event(EventKind.CHANGE))
    assert [True, True] == [commits(8), commits(9)]
    connections.close()


def test_every_other_checkpoint_is_made_over_a_connection_of_its_own(tmp_path: Path) -> None:
    scenario = next(one for one in LIFE if one.settings_name == "wal_full.life")
    site = Site(scenario.orders, str(tmp_path))
    connections = Connections(site, lambda _: None, lambda _: None)
    connections.create()
    told: list[str] = []
    connection_of(connections).set_trace_callback(told.append)
    for number in range(2, 6):
        connections.commit(site.work.transaction(number))
        connections.note_acknowledgement()
        connections.happen(Event(EventKind.CHECKPOINT))
    assert 2 == sum("wal_checkpoint" in line for line in told)
    # The others moved the log too, and are seen.
    assert 4 == [word for _, _, word in connections.reached].count(of_sqlite.COMPLETE)
    connections.close()


def test_a_transaction_that_fails_in_another_process_is_an_error_with_its_words(tmp_path: Path) -> None:
    site = Site(LIFE[0].orders, str(tmp_path))
    connections = Connections(site, lambda _: None, lambda _: None)
    connections.happen(Event(EventKind.OTHER_PROCESS))
    with pytest.raises(RuntimeError, match=r"the other process failed: (?s:.*)OperationalError"):
        connections.commit(site.work.transaction(2))


@pytest.mark.parametrize("kind", [EventKind.CHANGE, EventKind.REOPEN])
def test_what_needs_the_database_alone_first_ends_the_reader_and_the_second_connection(
    kind: EventKind, tmp_path: Path
) -> None:
    site, connections = begun("wal_full.life", tmp_path)
    work = site.work
    connections.happen(Event(EventKind.HOLD))
    connections.happen(Event(EventKind.OTHER_CONNECTION))
    connections.commit(work.transaction(2))
    connections.happen(Event(kind))
    connections.commit(work.transaction(3))
    connections.close()
    assert {"hold-snapshot", "other-connection"} <= {word for _, _, word in connections.reached}
    assert Finding(FindingKind.PREFIX, 3) == work.oracle().judge(site.open_database)
