"""What parts of SQLite's files are called, on files that SQLite itself has written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.engines import engine_named
from rig.engines.roles import FileRoles, roles_of
from rig.engines.sqlite.roles import role

PAGE = 4096


def roles_in(folder: Path, name: str, begin: int, length: int) -> str:
    """Name a part of a file in a folder."""
    return role(name, begin, length, lambda path, at, count: (folder / path).read_bytes()[at : at + count])


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    """A database in WAL mode with two commits since the last checkpoint."""
    with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=wal")
        database.execute("CREATE TABLE t (a)")
        database.execute("INSERT INTO t VALUES (1)")
        for file in tmp_path.iterdir():
            (tmp_path / f"copy-{file.name}").write_bytes(file.read_bytes())
    return tmp_path


def test_a_frame_has_its_number_its_page_and_says_whether_it_commits(wal: Path) -> None:
    name = "copy-test.db-wal"
    size = (wal / name).stat().st_size
    frame_count = (size - 32) // (PAGE + 24)
    assert "header of the WAL and frame 1 (page 1)" == roles_in(wal, name, 0, PAGE)
    assert roles_in(wal, name, size - 100, 100).startswith(f"frame {frame_count} (page ")
    assert roles_in(wal, name, size - 100, 100).endswith(", commits)")
    assert f"and {frame_count + 1 - 4} more frames" in roles_in(wal, name, 0, size) or frame_count < 4


def test_a_frame_that_a_new_round_has_not_overwritten_is_called_so(wal: Path) -> None:
    name = "copy-test.db-wal"
    data = bytearray((wal / name).read_bytes())
    data[16:24] = b"otherone"
    (wal / name).write_bytes(data)
    assert "frame 1 of an earlier round" == roles_in(wal, name, 64, 64)


def test_a_page_is_called_by_its_number_and_its_place_in_a_tree(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "test.db")) as database:
        database.execute("CREATE TABLE t (a PRIMARY KEY)")
        database.executemany("INSERT INTO t VALUES (?)", [(f"{number:0300}",) for number in range(99)])
        database.commit()
    pages = [roles_in(tmp_path, "test.db", number * PAGE, PAGE) for number in range(6)]
    assert "page 1 (header and schema)" == pages[0]
    assert {"interior of a table", "interior of an index", "leaf of a table", "leaf of an index"} <= {
        page.partition("(")[2].rstrip(")")
        for page in (roles_in(tmp_path, "test.db", at * PAGE, PAGE) for at in range(30))
    }


def test_a_record_of_the_journal_has_its_page_and_a_zeroed_header_ends_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=persist")
        database.execute("PRAGMA cache_size=2")
        database.execute("CREATE TABLE t (a)")
        database.execute("INSERT INTO t VALUES (1)")
        assert roles_in(tmp_path, "test.db-journal", 0, 512).startswith("zeroed header of the journal")
        database.execute("PRAGMA cache_spill=1")
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,) for _ in range(40)])
        header = roles_in(tmp_path, "test.db-journal", 0, PAGE)
        assert header.startswith("header of the journal (")
        assert "record 1 (page " in header
        database.execute("ROLLBACK")


@given(st.sampled_from(["a.db", "a.db-wal", "a.db-journal", "a.db-shm", "a.txt"]), st.binary(max_size=300),
       st.integers(0, 1 << 20), st.integers(1, 1 << 14))  # fmt: skip
def test_garbage_has_some_name_or_none_and_is_never_an_error(name: str, data: bytes, begin: int, length: int) -> None:
    found = role(name, begin, length, lambda _, at, count: data[at : at + count])
    assert isinstance(found, str)
    assert "" == role("notes.txt", begin, length, lambda _, at, count: data[at : at + count])


def test_the_rig_finds_the_roles_of_an_engine_that_has_some() -> None:
    assert isinstance(roles_of(engine_named("sqlite")), FileRoles)
    assert roles_of(engine_named("files")) is None
