"""A later life, with the real SQLite: it goes on from what it has shown, and what was lost before looks different."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.findings import Finding, FindingKind
from rig.contract.messages import decode
from rig.contract.orders import Orders
from rig.engines.own import NoResult, Task
from rig.engines.program import driver
from rig.guest.programs import workload
from rig.guest.site import Site
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from rig.planning import matrix
from tests.leaks import as_if_the_process_ended

COUNT, CUT, LATER = 12, 5, 3


@pytest.fixture
def orders() -> Orders:
    return orders_of("sqlite-ext4-wal_full_secondcut")


def orders_of(scenario: str) -> Orders:
    (found,) = matrix.select([scenario])
    return replace(found, workload=replace(found.workload, transaction_count=COUNT, think_ms=0, rest_ms=0)).orders


@pytest.fixture
def lost(orders: Orders, tmp_path: Path) -> Path:
    """Give the files as they were when transaction `CUT` was acknowledged; the whole first life is in `first`."""
    first, cut = tmp_path / "first", tmp_path / "cut"
    first.mkdir()

    def mark(text: str) -> None:
        if text == f"ack-{CUT}":
            shutil.copytree(first, cut)

    workload.run(Site(orders, str(first)), mark)
    return cut


def lived(orders: Orders, folder: Path) -> tuple[Finding, list[str]]:
    marks: list[str] = []
    facts = workload.run(Site(orders, str(folder), later_count=LATER), marks.append)
    return decode(Finding, facts["finding"]), [one for one in marks if one != "tick"]


def shown(orders: Orders, folder: Path, *lives: int) -> Finding:
    site = Site(replace(orders, lives=lives), str(folder))
    return site.work.oracle().judge(site.open_database)


def turns(*numbers: int) -> list[str]:
    return [f"{kind}-{number}" for number in numbers for kind in ("begin", "ack")]


def test_it_goes_on_after_what_the_recovered_database_shows_and_so_does_the_next(orders: Orders, lost: Path) -> None:
    finding, marks = lived(orders, lost)
    assert (FindingKind.PREFIX, CUT) == (finding.kind, finding.recovered)
    assert [f"recovered-{CUT}", *turns(6, 7, 8), "end"] == marks
    assert (FindingKind.PREFIX, 8) == (shown(orders, lost, CUT).kind, shown(orders, lost, CUT).recovered)
    finding, marks = lived(replace(orders, lives=(CUT,)), lost)
    assert 8 == finding.recovered
    assert ["recovered-8", *turns(9, 10, 11), "end"] == marks
    assert 11 == shown(orders, lost, CUT, 8).recovered


def test_a_walk_goes_on_from_where_it_was_but_does_not_make_its_database(tmp_path: Path) -> None:
    walk = orders_of("sqlite-ext4-wal_full.life_secondcut")
    made, empty = tmp_path / "made", tmp_path / "empty"
    made.mkdir()
    empty.mkdir()
    # Making the database, and one transaction.
    workload.run(Site(replace(walk, transaction_count=2), str(made)), lambda _: None)
    finding, marks = lived(walk, made)
    assert (FindingKind.PREFIX, 2) == (finding.kind, finding.recovered)
    assert ["recovered-2", *turns(3, 4, 5), "end"] == marks
    assert (FindingKind.PREFIX, 5) == (shown(walk, made, 2).kind, shown(walk, made, 2).recovered)
    finding, marks = lived(walk, empty)
    assert (FindingKind.PREFIX, 0) == (finding.kind, finding.recovered)
    assert [] == marks


def test_what_an_earlier_life_lost_is_no_transaction_of_a_later_one(orders: Orders, lost: Path) -> None:
    lived(orders, lost)
    assert FindingKind.FOREIGN is shown(orders, lost).kind
    # The files of a first life that was not cut, taken for those after a cut.
    assert COUNT == shown(orders, lost.with_name("first")).recovered
    assert FindingKind.FOREIGN is shown(orders, lost.with_name("first"), CUT).kind


def test_the_last_life_does_what_is_left_and_a_life_without_anything_left_none(orders: Orders, lost: Path) -> None:
    shorter = replace(orders, transaction_count=CUT + 1)
    assert [f"recovered-{CUT}", *turns(6), "end"] == lived(shorter, lost)[1]
    finding, marks = lived(replace(shorter, lives=(CUT,)), lost)
    assert ([], CUT + 1) == (marks, finding.recovered)


def test_a_database_that_does_not_come_back_lives_no_further(orders: Orders, lost: Path) -> None:
    (lost / "test.db").write_bytes(b"no database" * 1000)
    for path in lost.glob("test.db-*"):
        path.unlink()
    finding, marks = lived(orders, lost)
    assert ([], True) == (marks, finding.kind in {FindingKind.CORRUPT, FindingKind.UNOPENABLE})


def test_an_engine_that_fails_after_it_has_recovered_is_a_finding_in_its_words(orders: Orders, lost: Path) -> None:
    with closing(sqlite3.connect(lost / "test.db")) as database:
        database.execute(
            "CREATE TRIGGER no BEFORE INSERT ON entry WHEN new.id > 13 BEGIN SELECT raise(ABORT, 'no'); END"
        )
        database.commit()
    finding, marks = lived(orders, lost)
    assert [f"recovered-{CUT}", *turns(6), "begin-7"] == marks
    assert (FindingKind.CORRUPT, None) == (finding.kind, finding.recovered)
    assert f"it had recovered {CUT} transactions; when it worked on: SQLITE_CONSTRAINT_TRIGGER: no" == finding.detail


def test_a_recovered_program_is_told_what_it_has_and_one_that_ignores_that_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$*" > told\necho "ack 1"\nread -r ok\n')
    program.chmod(0o755)
    task = Task({"library": "program"}, str(tmp_path), 7, COUNT, after=2, last=4)
    with as_if_the_process_ended():
        session = driver.session(lambda words: Child(words, str(tmp_path), is_confined=False), task)
        with pytest.raises(NoResult, match="said 'ack 1' where `ack 3` was due"):
            session.commit(3)
        assert "run --seed 7 --transactions 4 --after 2\n" == (tmp_path / "told").read_text()
        kill_children()
