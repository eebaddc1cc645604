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
from rig.engines.own import Task
from rig.engines.program import stock as program_stock
from rig.engines.sqlite import stock
from rig.engines.stock import OwnStock, Stock, own_stock_of, stock_of
from rig.workloads import Work

COUNT = 4
WORK = Work("ledger", 1, COUNT)
PROGRAMS = (
    "sh", "rm", "mkdir", "mktemp", "tar", "gzip", "dirname", "cat", "cmp", "diff", "head", "tail", "cut", "env", "awk",
    "sort", "sed", "grep",
)  # fmt: skip
SETTINGS = {"journal_mode": "delete", "synchronous": "off", "page_size": "4096", "wal_autocheckpoint": "60"}


def database(folder: Path, count: int) -> Path:
    """The files of a database after some transactions."""
    folder.mkdir(parents=True)
    opened = engine_named("sqlite").driver().open_database(str(folder), SETTINGS)
    opened.create(WORK.first_tables, WORK.initial)
    for number in range(1, count + 1):
        opened.commit(WORK.transaction(number))
    opened.close()
    return folder


def write_folder(folder: Path, offer: Stock, control: Path, files: Path) -> Path:
    """A folder as the exporter writes it: with the script, and with files after none and after some transactions."""
    tables = [table for table in WORK.tables if table.name in WORK.models[COUNT]]
    for name, below, text, count in (("control", control, "control", 0), ("files", files, "expected", COUNT)):
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as packed:
            packed.add(below, ".")
        (folder / f"{text}.txt").write_text(offer.rows_text(tables, WORK.models[count]))
    (folder / "reproduce.sh").write_text(script_of(offer.script(tables, SETTINGS)))
    return folder


def exported(folder: Path, count: int) -> Path:
    return write_folder(folder, as_stock(stock), database(folder / "none", 0), database(folder / "some", count))


def as_stock(module: object) -> Stock:
    assert isinstance(module, Stock)
    return module


def programs_without(folder: Path, *left_out: str) -> str:
    """A PATH with the programs of every host, without some."""
    folder.mkdir()
    for name in {*PROGRAMS, "python3"} - {*left_out}:
        place = shutil.which(name, path=f"{os.defpath}:/usr/bin:/bin")
        assert place, name
        (folder / name).symlink_to(place)
    return str(folder)


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


def test_the_control_may_have_other_tables_than_the_state(tmp_path: Path) -> None:
    folder = exported(tmp_path / "state", COUNT)
    account, *_ = tables = [table for table in WORK.tables if table.name in WORK.models[COUNT]]
    (folder / "control.txt").write_text(stock.rows_text([account], WORK.models[0]))
    (folder / "reproduce.sh").write_text(script_of(stock.script([account], SETTINGS), stock.script(tables, SETTINGS)))
    done = run(folder)
    assert 1 == done.returncode, done.stdout + done.stderr


def test_a_damaged_database_is_shown_by_the_engines_own_words(tmp_path: Path) -> None:
    damaged = database(tmp_path / "state" / "some", COUNT)
    (damaged / "test.db").write_bytes(b"SQLite format 3\0" + bytes(8000))
    done = run(write_folder(tmp_path / "state", as_stock(stock), database(tmp_path / "none", 0), damaged))
    assert 0 == done.returncode
    assert "NOT AS ACKNOWLEDGED" in done.stdout
    assert "not a database" in done.stdout or "malformed" in done.stdout


def test_the_script_needs_the_shell_of_the_engine_or_python(tmp_path: Path) -> None:
    folder = exported(tmp_path / "state", COUNT - 1)
    done = run(folder, programs_without(tmp_path / "programs"))
    assert 0 == done.returncode, done.stdout + done.stderr
    assert run(folder).stdout == done.stdout


def test_a_host_without_the_tools_shows_no_loss(tmp_path: Path) -> None:
    done = run(exported(tmp_path / "state", COUNT - 1), programs_without(tmp_path / "programs", "python3"))
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "python3: not found" in done.stdout
    assert "THIS HOST CANNOT SHOW IT" in done.stdout
    assert "NOT AS ACKNOWLEDGED" not in done.stdout


def environment(folder: Path, count: int) -> Path:
    """An environment that LMDB's own tool has loaded, after some transactions."""
    folder.mkdir(parents=True)
    for name, rows in ((name, rows) for name, rows in WORK.models[count].items() if rows):
        lines = "".join(f"{key:012}\n{json.dumps(row)}\n" for key, row in rows.items())
        subprocess.run(["mdb_load", "-T", "-s", name, folder], input=lines, text=True, check=True, timeout=60)
    (folder / "lock.mdb").unlink(missing_ok=True)
    return folder


def exported_environment(folder: Path, count: int) -> Path:
    return write_folder(
        folder, as_stock(lmdb_stock), environment(folder / "none", 0), environment(folder / "some", count)
    )


def test_lmdbs_own_tools_tell_a_lost_transaction_from_none(tmp_path: Path) -> None:
    lost, kept = (run(exported_environment(tmp_path / str(count), count)) for count in (COUNT - 1, COUNT))
    assert (0, 1) == (lost.returncode, kept.returncode), lost.stdout + kept.stdout
    assert "mdb_copy -c: ok" in lost.stdout
    assert "NOT AS ACKNOWLEDGED" in lost.stdout
    assert any(line.startswith("< ") for line in lost.stdout.splitlines())
    assert "nothing is lost" in kept.stdout


def test_a_damaged_environment_is_shown_by_lmdbs_own_words(tmp_path: Path) -> None:
    damaged = environment(tmp_path / "state" / "some", COUNT)
    data = damaged / "data.mdb"
    data.write_bytes(bytes(8192) + data.read_bytes()[8192:])
    done = run(write_folder(tmp_path / "state", as_stock(lmdb_stock), environment(tmp_path / "none", 0), damaged))
    assert 0 == done.returncode
    assert "MDB_INVALID" in done.stdout
    assert "mdb_copy -c: ok" not in done.stdout


def exported_program(folder: Path, answer: str, *, promise: str = "durable", count: int = 3) -> Path:
    """A folder with a program that answers by a file: `run` writes it, and here a state has another one."""
    (folder / "program").mkdir(parents=True)
    program = folder / "program" / "mydb"
    program.write_text('#!/bin/sh\nif [ "$1" = run ]; then read -r ok; echo have 1 > log; else cat log; fi\n')
    program.chmod(0o755)
    (folder / "log").write_text(answer)
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        packed.add(folder / "log", "data/log")
    task = Task({"program": "mydb", "promise": promise}, "", 1, count)
    (folder / "reproduce.sh").write_text(script_of(program_stock.own_script(task)))
    (folder / "expected.txt").write_text(program_stock.numbers_text(range(1, count + 1)))
    (folder / "control.txt").write_text(program_stock.numbers_text({1}))
    return folder


@pytest.mark.parametrize(
    ("answer", "promise", "code"),
    [
        ("have 2\nhave 1\nhave 3\n", "durable", 1),
        ("have 1\nhave 2\nhave 3\nhave 4\n", "durable", 1),
        ("have 1\nhave 2\nhave 3\ntorn 4 half\n", "durable", 1),
        ("have 1\nhave 2\nhave 3\ntorn 4 half\n", "durable_atomic", 0),
        ("have 1\nhave 2\n", "durable", 0),
        ("have 1\ntorn 2 half\nhave 3\n", "durable", 0),
        ("have 1\nhave 2\nhave 3\nhave 3\n", "durable", 0),
        ("have 1\nhave 2\nhave 3\nnonsense\n", "durable", 0),
        ("", "durable", 0),
    ],
)
def test_a_program_says_itself_what_it_has(tmp_path: Path, answer: str, promise: str, code: int) -> None:
    done = run(exported_program(tmp_path / "state", answer, promise=promise))
    assert code == done.returncode, done.stdout + done.stderr


def test_a_program_that_this_host_cannot_run_shows_no_loss(tmp_path: Path) -> None:
    folder = exported_program(tmp_path / "state", "have 1\n")
    (folder / "program" / "mydb").write_text("#!/usr/bin/no-interpreter\n")
    done = run(folder)
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "THIS HOST CANNOT SHOW IT" in done.stdout


@pytest.mark.parametrize("name", ["leveldb", "lmdb", "mariadb", "postgresql", "rocksdb", "sqlite"])
def test_every_engine_with_tables_has_a_script(name: str) -> None:
    offer = stock_of(engine_named(name))
    assert isinstance(offer, Stock)
    assert bool(offer.PACKAGES) is not bool(offer.FILES)
    assert own_stock_of(engine_named(name)) is None


def test_a_program_has_a_script_of_its_own() -> None:
    assert isinstance(own_stock_of(engine_named("program")), OwnStock)
    assert stock_of(engine_named("program")) is None
    assert own_stock_of(engine_named("files")) is None
