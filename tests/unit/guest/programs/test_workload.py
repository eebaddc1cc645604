"""The workload when its engine fails although nothing was cut."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.engines.sqlite.driver import SqliteDatabase
from rig.guest.programs import workload
from rig.guest.site import Site
from rig.guest.watch.forks import EngineFailed, Fork
from rig.planning import matrix

NUMBER = 3


@pytest.fixture
def orders() -> Orders:
    (found,) = matrix.select(["sqlite-ext4-delete_off_powercut"])
    return replace(found, workload=replace(found.workload, transaction_count=6, think_ms=0, rest_ms=0)).orders


def _before(number: int, what: Callable[[], object]) -> Callable[[str], None]:
    return lambda mark: what() if mark == f"begin-{number}" else None  # type: ignore[return-value]


def _run_apart(site: Site, mark: Callable[[str], None]) -> None:
    """Run the workload in a process of its own, as a recorder does: it leaves its database open."""
    Fork(lambda send: send(workload.run(site, mark))).wait().require("the workload")


def test_a_database_that_is_damaged_without_a_cut_is_the_engines_failure_in_one_line(
    orders: Orders, tmp_path: Path
) -> None:
    (place := tmp_path / "data").mkdir()

    def damage() -> None:
        database = place / "test.db"
        size = database.stat().st_size
        with database.open("r+b") as file:
            # The counter of changes, too, so that the connection reads its pages again.
            file.seek(24)
            file.write(b"\x7f" * 4)
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))

    with pytest.raises(EngineFailed) as failed:
        _run_apart(Site(orders, str(place)), _before(NUMBER, damage))
    (line,) = str(failed.value).splitlines()
    said = "sqlite failed: DatabaseError: database disk image is malformed"
    assert line == f"before any cut, in transaction {NUMBER} of ledger, {said}"


def test_what_an_injection_does_is_not_the_engines_failure(orders: Orders, tmp_path: Path) -> None:
    def fail() -> None:
        error = sqlite3.OperationalError("as on a disk that was cut")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    cut = replace(orders, injection=Injection.LIVECUT_CACHE)
    with pytest.raises(RuntimeError, match="as on a disk that was cut") as failed:
        _run_apart(Site(cut, str(tmp_path)), _before(NUMBER, fail))
    assert not isinstance(failed.value, EngineFailed)


def test_a_full_disk_is_not_the_engines_failure(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "data").mkdir()
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 100, 50, 50, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    monkeypatch.setattr(SqliteDatabase, "commit", _raise_full)
    with pytest.raises(RuntimeError, match="database or disk is full") as failed:
        _run_apart(Site(orders, str(place)), lambda _: None)
    assert not isinstance(failed.value, EngineFailed)


def _raise_full(*_: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def test_a_mistake_of_the_rig_is_not_the_engines(orders: Orders, tmp_path: Path) -> None:
    def stumble() -> None:
        raise LookupError("a mistake")

    with pytest.raises(RuntimeError, match="LookupError: a mistake") as failed:
        _run_apart(Site(orders, str(tmp_path)), _before(NUMBER, stumble))
    assert not isinstance(failed.value, EngineFailed)
