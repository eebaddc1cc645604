"""Several writers and readers of one database: what they do, and what is told of them. No test asserts a speed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rig.contract.errors import EngineError
from rig.engines import Database, named
from rig.speed import speeds
from rig.trials import connections
from rig.trials.connections import Draws, Flag, read, together
from rig.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation, Table, Verb
from tests.unit.test_speed import Told, on_this_disk, small


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
def seven(tmp_path: Path) -> Iterator[Database]:
    """Give a database with one row, `x` under key 7."""
    database = named("sqlite").driver().open_database(str(tmp_path), {"journal_mode": "wal"})
    table = Table("entry", (("value", str),))
    database.create([table], [Operation(Verb.INSERT, table.name, 7, ("x",))])
    yield database
    database.close()


def test_a_reader_reads_at_least_once_and_rejects_a_row_that_is_not_what_was_written(seven: Database) -> None:
    is_over = Flag()
    is_over.set()
    told = read(seven, "entry", {7: ("x",)}, Draws(0, "s"), is_over)
    assert (1, 1) == (told.count, len(told.sample_ns))
    for key, row, found in ((7, ("y",), r"\('x',\)"), (8, ("x",), "None")):
        with pytest.raises(EngineError, match=f"a reader found {found} under key {key}, where"):
            read(seven, "entry", {key: row}, Draws(0, "s"), is_over)


def test_a_reader_keeps_an_even_part_of_its_latencies(seven: Database, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def opened() -> Any:
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
            together(opened, [hangs, hangs], [], Flag(), Stopwatch(tmp_path, []))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
