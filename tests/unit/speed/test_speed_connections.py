"""Several writers and readers of one database: what they do, and what is reported of them. No test asserts a speed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rig.contract.errors import EngineError
from rig.engines import ReadableDatabase, engine_named
from rig.speed import speeds
from rig.speed.trials import connections
from rig.speed.trials.connections import Draws, Flag, in_threads, read, together, write
from rig.speed.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation, Row, Table, Verb
from tests.unit.speed.test_speed import Told, on_this_disk, small


def test_readers_find_the_rows_that_were_there_while_others_are_written(tmp_path: Path) -> None:
    found = on_this_disk(small("wal_full", "delete_full", rows=4, writers=2, readers=2), tmp_path, 1, 1, Told())
    assert ["transactions_per_s", "reads_per_s"] == [metric.name for metric in found.metrics]
    for one in found.trials:
        assert one.reads
        assert (10, 40, 10) == (one.transactions, one.rows, len(one.latencies_ns))
        assert one.reads.count >= 2
        assert one.reads.longest_ns >= max(one.reads.sample_ns)
        assert one.metrics["reads_per_s"] > 0
    speeds.save(found, tmp_path / "speed.json")
    assert found.trials == speeds.load(tmp_path / "speed.json").trials


@pytest.fixture
def seven(tmp_path: Path) -> Iterator[ReadableDatabase]:
    """Give a database with one row, `x` under key 7."""
    database = engine_named("sqlite").driver().open_database(str(tmp_path), {"journal_mode": "wal"})
    table = Table("entry", (("value", str),))
    assert isinstance(database, ReadableDatabase)
    database.create([table], [Operation(Verb.INSERT, table.name, 7, ("x",))])
    yield database
    database.close()


def test_a_reader_reads_at_least_once_and_rejects_a_row_that_is_not_what_was_written(seven: ReadableDatabase) -> None:
    is_over = Flag()
    is_over.set()
    told = read(seven, "entry", {7: ("x",)}, Draws(0, "s"), is_over)
    assert (1, 1) == (told.count, len(told.sample_ns))
    for key, row, found in ((7, ("y",), r"\('x',\)"), (8, ("x",), "None")):
        with pytest.raises(EngineError, match=f"a reader found {found} under key {key}, where"):
            read(seven, "entry", {key: row}, Draws(0, "s"), is_over)


def test_a_reader_keeps_an_even_part_of_its_latencies(seven: ReadableDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SAMPLE_MAX", 8)
    is_over = Flag()

    class Counted(Draws):
        count = 0

        def key(self, keys: Sequence[int]) -> int:
            self.count += 1
            if self.count == 100:
                is_over.set()
            return super().key(keys)

    told = read(seven, "entry", {7: ("x",)}, Counted(0, "s"), is_over)
    assert 100 == told.count
    assert 4 <= len(told.sample_ns) <= 8
    assert told.longest_ns >= max(told.sample_ns)


def test_connections_think_as_long_as_they_are_told_on_average(tmp_path: Path) -> None:
    fast, slow = (
        on_this_disk(small("wal_off", rows=1, think_ms=think_ms), tmp_path, 1, 1, Told()).trials[0]
        for think_ms in (0, 20)
    )
    thought_ns = slow.wall_ns - sum(slow.latencies_ns)
    draws = random.Random("connection 3 0")
    assert thought_ns >= sum(draws.uniform(0, 40) for _ in range(5)) * 1e6
    assert fast.wall_ns - sum(fast.latencies_ns) < thought_ns


def test_a_writer_that_dies_while_others_wait_is_told_at_once(tmp_path: Path) -> None:
    opened_count = multiprocessing.get_context("fork").Value("i", 0)

    def open_session() -> Any:
        with opened_count.get_lock():
            opened_count.value += 1
            number = opened_count.value
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return object()

    def hangs(*_: object) -> Any:
        raise TimeoutError("nobody was told")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(10)
    try:
        with pytest.raises(EngineError, match="a writer or reader ended without a word"):
            together(open_session, [hangs, hangs], [], Flag(), Stopwatch(tmp_path, []))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Together:
    """A session whose commits wait until every writer is in one: alone, each would wait for ever."""

    def __init__(self, writer_count: int) -> None:
        self.rows: dict[int, Row] = {}
        self._meeting = threading.Barrier(writer_count, timeout=10)

    def commit(self, operations: Sequence[Operation]) -> None:
        self._meeting.wait()
        self.rows |= {one.key: one.row for one in operations}

    def row(self, table: str, key: int) -> Row | None:  # noqa: ARG002 - there is one
        return self.rows.get(key)


def test_threads_are_in_one_session_at_the_same_time(tmp_path: Path) -> None:
    session, is_over, rows = Together(3), Flag(), {100: ("x",)}
    session.rows.update(rows)
    work = [[[Operation(Verb.INSERT, "entry", 10 * writer + each, ("y",))] for each in range(4)] for writer in range(3)]
    writers = [partial(write, work=part, draws=Draws(0, "w")) for part in work]
    readers = [partial(read, table="entry", rows=rows, draws=Draws(0, "r"), is_over=is_over)]
    begin_ns, written, (reader,) = in_threads(session, writers, readers, is_over, Stopwatch(tmp_path, []))
    assert [4, 4, 4] == [len(one.latencies_ns) for one in written]
    assert reader.count >= 1
    assert 13 == len(session.rows)
    assert all(begin_ns < ended_ns for ended_ns in (reader.ended_ns, *(one.ended_ns for one in written)))


def test_an_error_of_a_thread_is_raised_and_ends_the_readers(tmp_path: Path) -> None:
    def fails(_: object) -> Any:
        raise EngineError("the disk is gone")

    session, is_over, rows = Together(1), Flag(), {100: ("x",)}
    session.rows.update(rows)
    readers = [partial(read, table="entry", rows=rows, draws=Draws(0, "r"), is_over=is_over)]
    with pytest.raises(EngineError, match="the disk is gone"):
        in_threads(session, [fails], readers, is_over, Stopwatch(tmp_path, []))
    assert is_over.is_set
