"""What SQLite's files go through: what its transactions do to them, and what an opening meets, on real databases."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite import situations
from rig.engines.sqlite.spec import SPEC
from rig.workloads.events import EventKind
from rig.workloads.operations import Operation, Table, Verb

TABLE = Table("t", (("body", str),))
ROLL_BACK = Operation(Verb.ROLL_BACK)


def open_watched(folder: Path, journal_mode: str, **tuning: str) -> sqlite.SqliteDatabase:
    settings = {"page_size": "1024", "cache_size": "10", "wal_autocheckpoint": "0", **tuning}
    return sqlite.open_database(str(folder), {**settings, "journal_mode": journal_mode, "synchronous": "off"})


def fill(folder: Path, journal_mode: str, **tuning: str) -> sqlite.SqliteDatabase:
    database = open_watched(folder, journal_mode, **tuning)
    database.observe()
    database.create((TABLE,), rows(1, 3))
    # Times of files are as fine as a tick of the kernel's clock.
    for path in folder.iterdir():
        os.utime(path, ns=(1, 1))
    return database


def rows(first: int, count: int, chars: int = 900) -> list[Operation]:
    return [Operation(Verb.INSERT, "t", key, ("x" * chars,)) for key in range(first, first + count)]


def test_the_files_are_not_looked_at_unless_that_is_asked_for(tmp_path: Path) -> None:
    database = open_watched(tmp_path, "delete")
    database.create((TABLE,), rows(1, 3))
    database.commit(rows(10, 1))
    assert [] == database.seen()
    database.close()


@pytest.mark.parametrize("journal_mode", ["delete", "truncate", "persist", "wal"])
def test_a_spill_is_seen_when_it_happens_and_not_otherwise(journal_mode: str, tmp_path: Path) -> None:
    database = fill(tmp_path, journal_mode)
    ended = {"delete": situations.REMOVED, "truncate": situations.TRUNCATED, "persist": situations.ZEROED, "wal": ""}
    small = [word for word in [ended[journal_mode]] if word]
    database.commit(rows(10, 1))
    assert small == database.seen()
    for path in tmp_path.iterdir():
        os.utime(path, ns=(1, 1))
    database.commit(rows(20, 40))
    assert [situations.SPILLED, *small] == database.seen()
    assert [] == database.seen()
    for path in tmp_path.iterdir():
        os.utime(path, ns=(1, 1))
    database.commit([*rows(100, 40), ROLL_BACK])
    assert situations.SPILLED in database.seen()
    database.close()


def test_a_checkpoint_is_partial_while_a_reader_holds_a_snapshot_and_complete_afterwards(tmp_path: Path) -> None:
    database = fill(tmp_path, "wal")
    reader = open_watched(tmp_path, "wal")
    assert reader.happen(EventKind.HOLD, "")
    database.commit(rows(10, 2))
    assert database.happen(EventKind.CHECKPOINT, "passive")
    assert [situations.PARTIAL] == database.seen()
    assert reader.happen(EventKind.DROP, "")
    reader.close()
    assert database.happen(EventKind.CHECKPOINT, "passive")
    assert [situations.COMPLETE] == database.seen()
    database.commit(rows(20, 1))
    assert [situations.RESTARTED] == database.seen()
    assert [situations.LOG, situations.OLDER] == sqlite.met(str(tmp_path))
    database.close()
    assert [] == sqlite.met(str(tmp_path))


def test_a_long_log_is_seen(tmp_path: Path) -> None:
    database = fill(tmp_path, "wal", page_size="512")
    database.commit(rows(10, 30, 90_000))
    assert [situations.SPILLED, situations.GREW] == database.seen()
    database.close()


@pytest.mark.parametrize(
    ("journal_mode", "left"),
    [("truncate", situations.EMPTY_JOURNAL), ("persist", situations.ENDED_JOURNAL), ("delete", "")],
)
def test_the_journal_that_a_commit_leaves_is_met_and_one_in_the_midst_is_hot(
    journal_mode: str, left: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    database = fill(folder, journal_mode)
    database.commit(rows(10, 1))
    assert ([left] if left else []) == sqlite.met(str(folder))
    # The cache has spilled and the transaction is open, as at a cut in its midst.
    path = str(folder / sqlite.FILE)
    other = sqlite3.connect(path, isolation_level=None)
    for pragma in ("cache_size=10", "synchronous=full", f"journal_mode={journal_mode}"):
        other.execute(f"PRAGMA {pragma}").fetchall()
    other.execute("BEGIN")
    for key in range(20, 60):
        other.execute("INSERT INTO t VALUES (?, ?)", (key, "y" * 900))
    other.execute("UPDATE t SET body='z'")
    shutil.copytree(folder, tmp_path / "cut")
    assert [situations.HOT] == sqlite.met(str(tmp_path / "cut"))
    other.execute("ROLLBACK")
    other.close()
    database.close()


def test_a_journal_that_names_a_super_journal_or_has_a_strange_header_is_told_apart(tmp_path: Path) -> None:
    journal = tmp_path / f"{sqlite.FILE}-journal"
    magic = bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(magic + bytes(600) + b"/a/super-journal" + bytes(8) + magic)
    assert [situations.SUPER] == sqlite.met(str(tmp_path))
    journal.write_bytes(b"\x01" * 600)
    assert [situations.OTHER_JOURNAL] == sqlite.met(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\0", b"x" * 31, b"x" * 60, b"\xff" * 9000, bytes(9000)])
def test_whatever_is_in_the_files_an_answer_comes_and_no_error(content: bytes, tmp_path: Path) -> None:
    for name in ("", "-journal", "-wal"):
        (tmp_path / f"{sqlite.FILE}{name}").write_bytes(content)
    assert set(sqlite.met(str(tmp_path))) <= set(SPEC.met)
    assert [] == sqlite.met(str(tmp_path / "no such folder"))
