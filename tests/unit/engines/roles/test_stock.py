"""The script that shows a loss without the rig, on databases that have lost something or nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from rig.campaign.export import script_of
from rig.engines import engine_named
from rig.engines.lmdb import stock as lmdb_stock
from rig.engines.sqlite import stock
from rig.engines.stock import Stock, stock_of
from rig.workloads import Work

COUNT = 4
WORK = Work("ledger", 1, COUNT)
SETTINGS = {"journal_mode": "delete", "synchronous": "off", "page_size": "4096", "wal_autocheckpoint": "60"}


def exported(folder: Path, count: int) -> Path:
    """A folder as the exporter writes it, with a database after some of the acknowledged transactions."""
    files = folder / "files"
    files.mkdir(parents=True)
    database = engine_named("sqlite").driver().open_database(str(files), SETTINGS)
    database.create(WORK.first_tables, WORK.initial)
    for number in range(1, count + 1):
        database.commit(WORK.transaction(number))
    database.close()
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        for path in files.iterdir():
            packed.add(path, path.name)
    tables = [table for table in WORK.tables if table.name in WORK.models[COUNT]]
    (folder / "expected.txt").write_text(stock.rows_text(tables, WORK.models[COUNT]))
    (folder / "reproduce.sh").write_text(script_of(stock, tables))
    return folder


def run(folder: Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "reproduce.sh"],
        cwd=folder,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_lost_transaction_is_shown_row_by_row(tmp_path: Path) -> None:
    done = run(exported(tmp_path / "state", COUNT - 1))
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "PRAGMA integrity_check: ok" in done.stdout
    assert "NOT AS ACKNOWLEDGED" in done.stdout
    assert any(line.startswith("< ") for line in done.stdout.splitlines())


def test_a_database_that_lost_nothing_is_told_from_one_that_did(tmp_path: Path) -> None:
    done = run(exported(tmp_path / "state", COUNT))
    assert 1 == done.returncode
    assert "nothing is lost" in done.stdout


def test_a_damaged_database_is_shown_by_the_engines_own_words(tmp_path: Path) -> None:
    folder = exported(tmp_path / "state", COUNT)
    (folder / "files" / "test.db").write_bytes(b"SQLite format 3\0" + bytes(8000))
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        packed.add(folder / "files" / "test.db", "test.db")
    done = run(folder)
    assert 0 == done.returncode
    assert "NOT AS ACKNOWLEDGED" in done.stdout
    assert "not a database" in done.stdout or "malformed" in done.stdout


def test_the_script_needs_the_shell_of_the_engine_or_python(tmp_path: Path) -> None:
    folder, programs = exported(tmp_path / "state", COUNT - 1), tmp_path / "programs"
    programs.mkdir()
    for name in ("rm", "mkdir", "tar", "gzip", "dirname", "cat", "cmp", "diff", "head", "python3"):
        found = shutil.which(name, path=f"{os.defpath}:/usr/bin:/bin")
        assert found
        (programs / name).symlink_to(found)
    done = run(folder, str(programs))
    assert 0 == done.returncode, done.stdout + done.stderr
    assert run(folder).stdout == done.stdout


def environment(folder: Path, count: int) -> Path:
    """A folder with an environment that LMDB's own tool has loaded, after some of the acknowledged transactions."""
    files = folder / "files"
    files.mkdir(parents=True)
    for name, rows in WORK.models[count].items():
        lines = "".join(f"{key:012}\n{json.dumps(row)}\n" for key, row in rows.items())
        subprocess.run(["mdb_load", "-T", "-s", name, files], input=lines, text=True, check=True, timeout=60)
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        packed.add(files / "data.mdb", "data.mdb")
    (folder / "expected.txt").write_text(lmdb_stock.rows_text(WORK.tables, WORK.models[COUNT]))
    (folder / "reproduce.sh").write_text(script_of(lmdb_stock, WORK.tables))
    return folder


def test_lmdbs_own_tools_tell_a_lost_transaction_from_none(tmp_path: Path) -> None:
    lost, kept = run(environment(tmp_path / "lost", COUNT - 1)), run(environment(tmp_path / "kept", COUNT))
    assert (0, 1) == (lost.returncode, kept.returncode), lost.stdout + kept.stdout
    assert "mdb_copy -c: ok" in lost.stdout
    assert "NOT AS ACKNOWLEDGED" in lost.stdout
    assert any(line.startswith("< ") for line in lost.stdout.splitlines())
    assert "nothing is lost" in kept.stdout


def test_a_damaged_environment_is_shown_by_lmdbs_own_words(tmp_path: Path) -> None:
    folder = environment(tmp_path / "state", COUNT)
    data = folder / "files" / "data.mdb"
    data.write_bytes(bytes(8192) + data.read_bytes()[8192:])
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        packed.add(data, "data.mdb")
    done = run(folder)
    assert 0 == done.returncode
    assert "MDB_INVALID" in done.stdout
    assert "mdb_copy -c: ok" not in done.stdout


@pytest.mark.parametrize("name", ["sqlite", "lmdb"])
def test_the_rig_finds_the_stock_tools_of_an_engine_that_has_some(name: str) -> None:
    assert isinstance(stock_of(engine_named(name)), Stock)
    assert stock_of(engine_named("files")) is None
