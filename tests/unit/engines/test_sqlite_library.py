"""A SQLite that the user supplies behaves like the one of Python's driver, through either interface."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite import library as sqlite_library
from rig.engines.sqlite.library import APSW, SHARED, Connection, LibraryError
from rig.workloads import Work, ledger
from rig.workloads.oracle import Oracle
from tests.durability import builds

# Compiled once; three years older than Python's own SQLite.
OLD = "3.8.9"
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.integers(-(10**9), 10**9).map(lambda number: number / 8)
# A lone surrogate cannot be encoded in UTF-8, and no driver accepts it.
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.just("a\0b") | st.just("")
# Floats with few digits, because releases differ in how they print others.
VALUES = st.none() | INTEGERS | FLOATS | TEXTS | st.binary()


@pytest.fixture(scope="module")
def old_sqlite() -> Path:
    return builds.shared_library(OLD)


@pytest.fixture(scope="module")
def libraries(old_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it is in the guest: a shared library and an extension module of APSW, by their digests."""
    folder = tmp_path_factory.mktemp("libraries")
    (extension,) = builds.apsw_of_the_host("3.51.2.0").glob("apsw/__init__*.so")
    for kind, path in ((SHARED, old_sqlite), (APSW, extension)):
        content = path.read_bytes()
        (folder / sqlite_library.name(kind, content)).write_bytes(content)
    return folder


@pytest.fixture(params=[SHARED, APSW])
def library(request: pytest.FixtureRequest, libraries: Path) -> str:
    (found,) = [name for name in sqlite_library.names(libraries) if name.startswith(request.param)]
    return found


@pytest.fixture
def connection(library: str, libraries: Path) -> Connection:
    return sqlite_library.connect(":memory:", library, libraries)


@given(rows=st.lists(st.tuples(VALUES, VALUES), max_size=6))
def test_values_come_back_as_from_pythons_driver(libraries: Path, rows: list[tuple[object, object]]) -> None:
    own = sqlite3.connect(":memory:", isolation_level=None)
    for name in sqlite_library.names(libraries):
        given_ = sqlite_library.connect(":memory:", name, libraries)
        answers = []
        for connection in (own, given_):
            connection.execute("DROP TABLE IF EXISTS t")
            connection.execute("CREATE TABLE t (a, b)")
            for row in rows:
                connection.execute("INSERT INTO t VALUES (?, ?)", row)
            query = "SELECT a, b, typeof(a), length(b), hex(a) FROM t ORDER BY rowid"
            answers.append(list(connection.execute(query)))
        assert answers[0] == answers[1]
        assert [tuple(map(type, row)) for row in answers[0]] == [tuple(map(type, row)) for row in answers[1]]
        given_.close()
    own.close()


def test_the_version_is_that_of_the_library_and_not_pythons(library: str, libraries: Path) -> None:
    found = list(sqlite_library.connect(":memory:", library, libraries).execute("SELECT sqlite_version()"))
    expected = OLD if library.startswith(SHARED) else "3.51.2"
    assert [(expected,)] == found
    assert expected != sqlite3.sqlite_version


def test_errors_carry_the_words_and_the_code_of_sqlite(connection: Connection) -> None:
    with pytest.raises(Exception, match="no such table: nowhere") as no_table:
        connection.execute("SELECT * FROM nowhere")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(Exception, match=r"(?i)unique") as not_unique:
        connection.execute("INSERT INTO t VALUES (1)")
    assert [1, 19] == [sqlite_library.error_code(error.value) for error in (no_table, not_unique)]
    assert 0 == sqlite_library.error_code(ValueError())
    # The failed statement is over: the next ones work, and closing does not complain.
    assert [(1,)] == connection.execute("SELECT count(*) FROM t").fetchall()
    connection.close()


def test_a_transaction_is_known_to_be_open(connection: Connection) -> None:
    seen = [connection.in_transaction]
    for word in ("BEGIN IMMEDIATE", "ROLLBACK"):
        connection.execute(word)
        seen.append(connection.in_transaction)
    assert [False, True, False] == seen


def test_a_database_that_is_none_is_refused(library: str, libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"not a database " * 1000)
    connection = sqlite_library.connect(str(tmp_path / "junk"), library, libraries)
    with pytest.raises(Exception, match="not a database") as junk:
        connection.execute("SELECT * FROM sqlite_master")
    connection.close()
    with pytest.raises(Exception, match="unable to open") as nowhere:
        sqlite_library.connect(str(tmp_path / "no" / "where"), library, libraries).execute("SELECT 1")
    assert [26, 14] == [sqlite_library.error_code(error.value) for error in (junk, nowhere)]


def test_what_would_be_bound_or_run_only_in_part_is_refused(libraries: Path) -> None:
    (name,) = [name for name in sqlite_library.names(libraries) if name.startswith(SHARED)]
    connection = sqlite_library.connect(":memory:", name, libraries)
    for value in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError):
            connection.execute("SELECT ?", (value,))
    for sql in ("SELECT 1; SELECT 2", "", "-- nothing"):
        with pytest.raises(LibraryError, match="not one statement"):
            connection.execute(sql)
    for parameters in ((), (1, 2)):
        with pytest.raises(LibraryError, match="1 parameters"):
            connection.execute("SELECT ?", parameters)
    assert [(1,)] == connection.execute("SELECT 1 ; ").fetchall()
    connection.close()
    with pytest.raises(LibraryError, match="closed"):
        connection.execute("SELECT 1")


def test_the_engine_works_with_it_and_reads_back_which_it_was(
    library: str, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_library, "FOLDER", libraries)
    asked = {"journal_mode": "truncate", "synchronous": "full", "page_size": "4096", "library": library}
    database = sqlite.open_database(str(tmp_path), asked)
    database.create(ledger.TABLES, ledger.initial(3))
    for number in range(1, 6):
        database.commit(ledger.transaction(3, number))
    read_back = database.settings()
    assert asked == {name: read_back[name] for name in asked}
    assert (OLD if library.startswith(SHARED) else "3.51.2") == read_back["version"]
    assert read_back["source_id"].startswith("20")
    database.close()
    oracle = Oracle(ledger.TABLES, Work("ledger", 3, 5).models, partial(ledger.transaction, 3))
    for settings_ in (asked, {}):
        found = oracle.judge(lambda chosen=settings_: sqlite.open_database(str(tmp_path), chosen))  # type: ignore[misc]
        assert ("prefix", 5) == (found.kind, found.recovered)


def test_a_library_that_was_mixed_up_does_not_read_back(libraries: Path, tmp_path: Path) -> None:
    for name in sqlite_library.names(libraries):
        assert name == sqlite_library.digest(name, libraries)
        (tmp_path / name).write_bytes((libraries / name).read_bytes() + b"x")
        assert name != sqlite_library.digest(name, tmp_path)
    assert [] == sqlite_library.names(tmp_path / "absent")
