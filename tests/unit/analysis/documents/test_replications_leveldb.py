"""The load of the document on the WAL of RocksDB, in small, through the binding of an engine that always has a log."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.documents.replications import s4_leveldb
from rig.contract.errors import EngineError
from rig.engines.leveldb import accounts
from rig.speed.trials.replication import ArmTask
from rig.speed.trials.stopwatch import Stopwatch

LEVELDB = s4_leveldb.REPLICATION
SCALE = 0.01
RECORDS = 10_000
LEVELS = range(7)


def is_missing(arm: str, folder: Path) -> bool:
    """Whether the binding has no wheel for this Python; what a test calls missing must really be missing."""
    why = LEVELDB.obstacle(arm, str(folder))
    assert bool(why) is (importlib.util.find_spec("plyvel") is None)
    if why:
        with pytest.raises(ModuleNotFoundError):
            LEVELDB.carry_out(ArmTask(arm, str(folder), 1, SCALE), Stopwatch(folder, []))
    return bool(why)


def carry_out(folder: Path, arm: str) -> dict[str, Any]:
    watch = Stopwatch(folder, [])
    LEVELDB.carry_out(ArmTask(arm, str(folder), 1, SCALE), watch)
    return watch.facts


@pytest.mark.parametrize("arm", LEVELDB.arms)
def test_every_arm_counts_its_metrics_with_a_log(tmp_path: Path, arm: str) -> None:
    if is_missing(arm, tmp_path):
        return
    facts = carry_out(tmp_path, arm)
    counts = facts["counts"]
    assert {metric.name for metric in LEVELDB.metrics} <= set(counts)
    assert (RECORDS, RECORDS * 116) == (counts["transactions"], counts["user_bytes"])
    logged = counts["write_amplification"] - counts["write amplification without the log"]
    # A record has 3 bytes more than its key and value, a batch 12, and its record in the log 7.
    assert pytest.approx((119.19 if "batch100" in arm else 138) / 116, abs=0.001) == logged
    # Compactions that reads bring about drop what was overwritten.
    assert 0.3 < counts["space_amplification"] < 0.7
    assert counts["write amplification without the log"] > counts["space_amplification"] - 0.001
    found = counts.get("reads that found a record", 0)
    assert 0.62 < found / RECORDS < 0.645 if "readrandom" in arm else 0 == found


def test_the_bytes_by_the_info_log_are_those_of_the_tables_and_of_the_property(tmp_path: Path) -> None:
    if is_missing("leveldb-fillrandom", tmp_path):
        return
    import plyvel

    counts = carry_out(tmp_path, "leveldb-fillrandom")["counts"]
    tables = list((tmp_path / "db").glob("*.ldb"))
    assert sum(path.stat().st_size for path in tables) == round(counts["space_amplification"] * counts["user_bytes"])
    # Compactions, and a second opinion, in whole MB for each level.
    database = plyvel.DB(str(tmp_path / "more"), create_if_missing=True, write_buffer_size=200_000)
    for number in range(60_000):
        database.put(b"%016d" % (number * 7919 % 60_000), b"%0100d" % number)
    s4_leveldb._settle(database)
    said = (tmp_path / "more" / "LOG").read_text()
    lines = [line.split() for line in database.get_property(b"leveldb.stats").decode().splitlines()[3:]]
    by_property = sum(int(words[5]) for words in lines)
    by_log = (accounts.flushed_bytes(said) + accounts.compacted_bytes(said)) / (1 << 20)
    assert accounts.compacted_bytes(said) > 0
    assert abs(by_property - by_log) <= 0.5 * len(lines)
    sizes = accounts.levels(database.get_property(accounts.SSTABLES).decode())
    assert sum(map(sum, sizes.values())) == sum(path.stat().st_size for path in (tmp_path / "more").glob("*.ldb"))
    database.close()


@pytest.mark.parametrize(("batch_records", "count"), [(1, 3000), (100, 3050), (1000, 2000)])
def test_the_bytes_of_the_log_are_those_of_the_file(tmp_path: Path, batch_records: int, count: int) -> None:
    if is_missing("leveldb-fillrandom", tmp_path):
        return
    import plyvel

    database = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    for first in range(0, count, batch_records):
        with database.write_batch() as batch:
            for number in range(first, min(first + batch_records, count)):
                batch.put(b"%016d" % number, b"x" * 100)
    (log,) = (tmp_path / "db").glob("*.log")
    assert log.stat().st_size == accounts.log_bytes(116, batch_records, count)
    database.close()


@given(st.lists(st.integers(1, 5000), max_size=20), st.integers(1, 40))
def test_a_log_has_a_header_for_each_part_and_no_record_begins_in_a_blocks_last_six_bytes(
    record_bytes: list[int], batch_records: int
) -> None:
    for each in record_bytes:
        size = 12 + batch_records * (3 + each)
        taken = accounts.log_bytes(each, batch_records, batch_records * 30)
        assert 30 * (size + 7) <= taken
        # In each block at most one batch goes on in the next, and at most six bytes are left empty.
        assert taken <= 30 * (size + 7) + 13 * (taken // (32 << 10) + 1)


TABLES = st.dictionaries(st.sampled_from(LEVELS), st.lists(st.integers(0, 1 << 40), max_size=5))
# What LevelDB leaves unescaped, brackets and quotes included.
KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@given(TABLES, KEYS)
def test_the_property_is_read_whatever_the_keys_are(tables: dict[int, list[int]], key: str) -> None:
    lines = []
    for level in LEVELS:
        lines.append(f"--- level {level} ---\n")
        lines += [f" 7:{size}['{key}' @ 1 : 1 .. '{key}' @ 2 : 1]\n" for size in tables.get(level, [])]
    assert {level: tables.get(level, []) for level in LEVELS} == accounts.levels("".join(lines))


@given(st.text(max_size=200))
def test_a_property_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match="take LevelDB"):
        accounts.levels(text)


NUMBERS = st.integers(0, 1 << 40)


@given(st.lists(st.tuples(st.booleans(), NUMBERS), min_size=1), NUMBERS)
def test_the_info_log_names_what_was_written_among_other_lines(written: list[tuple[bool, int]], first: int) -> None:
    lines = [f"Level-0 table #3: {first} bytes OK"]
    for is_compaction, size in written:
        lines += ["Level-0 table #5: started", f"Moved #5 to level-2 {size} bytes OK: files[ 0 0 1 0 0 0 0 ]"]
        lines.append(
            f"Compacted 4@0 + 1@1 files => {size} bytes" if is_compaction else f"Level-0 table #5: {size} bytes OK"
        )
    said = "".join(f"2026/11/25-01:02:03.575715 140435347991424 {line}\n" for line in lines)
    assert first + sum(size for is_compaction, size in written if not is_compaction) == accounts.flushed_bytes(said)
    assert sum(size for is_compaction, size in written if is_compaction) == accounts.compacted_bytes(said)


def test_an_info_log_that_names_no_table_is_an_error_and_no_zero() -> None:
    with pytest.raises(EngineError, match="names no table made from memory"):
        accounts.flushed_bytes("Level-0 table #5: started\n")
    assert 0 == accounts.compacted_bytes("")


@pytest.mark.parametrize(
    ("level", "sizes", "is_settled"),
    [
        (0, [1] * 3, True),
        (0, [1] * 4, False),
        (1, [(10 << 20) - 1], True),
        (1, [5 << 20, 5 << 20], False),
        (2, [(100 << 20) - 1], True),
        (2, [100 << 20], False),
        # There is no level to compact the last one into.
        (6, [1 << 60], True),
    ],
)
def test_it_is_settled_when_no_level_has_what_it_compacts(level: int, sizes: list[int], is_settled: bool) -> None:
    assert is_settled is accounts.is_settled({each: sizes if each == level else [] for each in LEVELS})


def test_an_arm_that_reads_is_compared_with_none_that_fills() -> None:
    assert all(re.match(r"leveldb-(fillseq|fillrandom|readrandom)", arm) for arm in LEVELDB.arms)
    assert "leveldb-readrandom" == LEVELDB.bases["leveldb-readrandom"]
    assert () == LEVELDB.figures
