"""The SQLite engine, with the SQLite of this Python: settings take hold, content comes back, damage is noticed."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rig import engines
from rig.contract.errors import UsageError
from rig.engines import Database, LeavableDatabase
from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite import situations
from rig.engines.sqlite.spec import SPEC
from rig.workloads import Work, ledger
from rig.workloads.oracle import Oracle

SEED, COUNT = 2, 30
MODELS = Work("ledger", SEED, COUNT).models
ORACLE = Oracle(ledger.TABLES, MODELS, partial(ledger.transaction, SEED))
QUICK = {"journal_mode": "memory", "synchronous": "off"}


def fill(folder: Path, count: int, settings: dict[str, str] | None = None) -> Database:
    database = sqlite.open_database(str(folder), settings or QUICK)
    database.create(ledger.TABLES, ledger.initial(SEED))
    for number in range(1, count + 1):
        database.commit(ledger.transaction(SEED, number))
    return database


@pytest.mark.parametrize("values", list(itertools.product(*SPEC.settings.values())), ids="_".join)
def test_every_setting_reads_back_as_it_was_asked_for_and_content_survives_a_reopen(
    tmp_path: Path, values: tuple[str, ...]
) -> None:
    asked = {**SPEC.tuning, **dict(zip(SPEC.settings, values, strict=True))}
    database = fill(tmp_path, 3, asked)
    read_back = database.settings()
    database.close()
    assert asked == {name: read_back[name] for name in asked}
    assert ("1", sqlite3.sqlite_version) == (read_back["foreign_keys"], read_back["version"])
    again = sqlite.open_database(str(tmp_path), asked)
    assert asked == {name: value for name, value in again.settings().items() if name in asked}
    assert MODELS[3] == again.content(ledger.TABLES)
    again.close()


TUNED = [
    (word, mode)
    for word, tuning in SPEC.tunings.items()
    for mode in ("delete", "persist", "wal")
    if not tuning.why_not({"journal_mode": mode, "synchronous": "full"})
]


@pytest.mark.parametrize(("word", "mode"), TUNED)
def test_every_tuning_reads_back_as_it_was_asked_for_after_a_reopen_too(tmp_path: Path, word: str, mode: str) -> None:
    tuning, settings = SPEC.tunings[word], {"journal_mode": mode, "synchronous": "full"}
    asked = {**SPEC.tuning, **tuning.values, **settings}
    database = fill(tmp_path, COUNT, asked)
    assert asked.items() <= database.settings().items()
    database.close()
    again = sqlite.open_database(str(tmp_path), asked)
    assert (asked.items() <= again.settings().items(), MODELS[COUNT]) == (True, again.content(ledger.TABLES))
    again.close()


def test_tunings_do_what_their_words_say(tmp_path: Path) -> None:
    """Each of these would be a zero that rests on nothing if SQLite took the value and did not act on it."""
    with ExitStack() as databases:
        do_what_their_words_say(tmp_path, databases)


def do_what_their_words_say(tmp_path: Path, databases: ExitStack) -> None:
    def at(mode: str, word: str = "") -> tuple[Path, sqlite.SqliteDatabase]:
        folder = tmp_path / f"{mode}{word}"
        folder.mkdir()
        values = SPEC.tunings[word].values if word else {}
        database = fill(folder, COUNT, {**SPEC.tuning, **values, "journal_mode": mode, "synchronous": "off"})
        assert isinstance(database, sqlite.SqliteDatabase)
        databases.callback(database.close)
        database.observe()
        database.commit(ledger.transaction(SEED, COUNT + 1))
        return folder, database

    assert situations.SPILLED in at("delete", "cache5")[1].seen()
    assert situations.SPILLED not in at("delete")[1].seen()
    limit = int(SPEC.tunings["sizelimit"].values["journal_size_limit"])
    sizes = [(at("persist", word)[0] / "test.db-journal").stat().st_size for word in ("sizelimit", "")]
    assert sizes[0] <= limit < sizes[1]
    assert (False, True) == tuple((at("wal", word)[0] / "test.db-shm").exists() for word in ("exclusive", "mmap"))
    free = [
        int(str(database._scalar("PRAGMA freelist_count")))
        for _, database in (at("truncate", "autovacuum"), at("truncate"))
    ]
    assert 0 == free[0] < free[1]


def test_the_content_equals_the_model_after_every_transaction_and_the_checks_are_content(tmp_path: Path) -> None:
    database = fill(tmp_path, 0)
    for number in range(COUNT + 1):
        if number:
            database.commit(ledger.transaction(SEED, number))
        assert MODELS[number] == database.content(ledger.TABLES)
    assert [] == database.problems()
    database.close()


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_leaving_a_database_loses_nothing_and_leaves_the_log_where_sqlite_can_be_told_so(
    tmp_path: Path, mode: str
) -> None:
    settings = {"journal_mode": mode, "synchronous": "full"}
    database = fill(tmp_path, 3, settings)
    assert isinstance(database, LeavableDatabase)
    database.leave()
    assert (tmp_path / "test.db-wal").exists() == (mode == "wal" and sys.version_info >= (3, 12))
    again = sqlite.open_database(str(tmp_path), settings)
    assert MODELS[3] == again.content(ledger.TABLES)
    again.close()


def test_a_transaction_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 1).close()
    database = sqlite.open_database(str(tmp_path), QUICK)
    with pytest.raises(sqlite3.IntegrityError):
        database.commit((*ledger.transaction(SEED, 2), *ledger.transaction(SEED, 1)))
    database.close()
    again = sqlite.open_database(str(tmp_path), QUICK)
    assert MODELS[1] == again.content(ledger.TABLES)
    again.close()


def behind_the_back(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / "test.db", isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (("PRAGMA writable_schema=on", "DELETE FROM sqlite_master WHERE name='entry_account'"), "never used"),
        (("PRAGMA foreign_keys=off", "DELETE FROM account WHERE id=(SELECT account FROM entry)"), "foreign key"),
    ],
    ids=["index forgotten", "dangling reference"],
)
def test_damage_made_by_statements_is_noticed(tmp_path: Path, statements: tuple[str, ...], words: str) -> None:
    fill(tmp_path, 5).close()
    behind_the_back(tmp_path, *statements)
    finding = ORACLE.judge(partial(sqlite.open_database, str(tmp_path), QUICK))
    assert ("corrupt", True) == (finding.kind, words in finding.detail)


def root_page(folder: Path, name: str) -> int:
    connection = sqlite3.connect(folder / "test.db")
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (name,)).fetchone()
    connection.close()
    return int(page)


@pytest.mark.parametrize(("name", "words"), [("entry_account", "missing from index"), ("entry", "wrong # of entries")])
def test_a_page_of_an_index_or_a_table_that_went_back_in_time_is_noticed(tmp_path: Path, name: str, words: str) -> None:
    # With two transactions, `entry` fits one page, and so does its index.
    fill(tmp_path, 1).close()
    path = tmp_path / "test.db"
    page = root_page(tmp_path, name)
    old = path.read_bytes()[(page - 1) * 4096 : page * 4096]
    database = sqlite.open_database(str(tmp_path), QUICK)
    database.commit(ledger.transaction(SEED, 2))
    database.close()
    image = bytearray(path.read_bytes())
    image[(page - 1) * 4096 : page * 4096] = old
    path.write_bytes(image)
    finding = ORACLE.judge(partial(sqlite.open_database, str(tmp_path), QUICK))
    assert ("corrupt", True) == (finding.kind, words in finding.detail)


def test_a_stale_page_that_sqlite_cannot_notice_is_noticed_by_the_oracle(tmp_path: Path) -> None:
    # An update that changes no index: SQLite's checks find nothing, but the content matches no prefix.
    fill(tmp_path, 5).close()
    behind_the_back(tmp_path, "UPDATE entry SET amount=amount+1 WHERE id=3")
    database = sqlite.open_database(str(tmp_path), QUICK)
    assert [] == database.problems()
    database.close()
    finding = ORACLE.judge(partial(sqlite.open_database, str(tmp_path), QUICK))
    assert ("foreign", True) == (finding.kind, "entry/3 (nearest model 5)" in finding.detail)


def test_a_file_that_is_no_database_is_never_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "test.db").write_bytes(b"x" * 8192)
    finding = ORACLE.judge(partial(sqlite.open_database, str(tmp_path), QUICK))
    assert finding.kind in ("unopenable", "corrupt")
    assert "file is not a database" in finding.detail


def test_an_unknown_engine_names_the_choices() -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'oracle'; there are: .*sqlite"):
        engines.engine_named("oracle")
