"""Several writers at a time, as real processes and threads: SQLite chooses who commits, not what."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.errors import UsageError
from rig.contract.findings import FindingKind
from rig.contract.scenario import Scenario
from rig.engines import CrowdedDatabase
from rig.faults import Mark
from rig.guest.programs import workload, writers
from rig.guest.site import Site
from rig.planning import matrix
from rig.recordings.timeline import Timeline
from rig.workloads import Work, situations

COUNT = 24
_ATTEMPTS = 20


def scenario(settings: str) -> Scenario:
    (found,) = matrix.select([f"sqlite-ext4-{settings}.writers_powercut"])
    return replace(found, workload=replace(found.workload, transaction_count=COUNT, think_ms=2, rest_ms=0))


@pytest.mark.parametrize("settings", ["wal_full", "wal_normal", "delete_full", "persist_normal"])
def test_the_content_is_that_of_the_transactions_in_their_order(tmp_path: Path, settings: str) -> None:
    words = Counter[str]()
    # On a host one writer may be done before the others have begun; in the guest, time is virtual.
    for attempt in range(_ATTEMPTS):
        words += Counter(_write(tmp_path / str(attempt), settings))
        if words[situations.BUSY] and words[situations.OTHER_WRITER] + words[situations.OTHER_THREAD]:
            return
    pytest.fail(f"in {_ATTEMPTS} runs no writer met another: {words}")


def _write(place: Path, settings: str) -> list[str]:
    """Let the writers do all their work and check it; return the situations that came about."""
    (folder := place / "data").mkdir(parents=True)
    site, told = Site(scenario(settings).orders, str(folder)), place / "marks"
    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = itertools.count(1)

    def mark(text: str) -> None:
        os.write(file, f"{text}\n".encode())

    facts = workload.run(site, mark)
    os.close(file)
    marks = [Mark(rank, f"{text}-{next(numbers)}") for rank, text in enumerate(told.read_text().split())]
    # Transactions begin in the order of their numbers; one may be acknowledged before the last one is.
    assert COUNT == len(Timeline(marks).acks)
    finding = site.work.oracle().judge(site.open_database)
    assert (FindingKind.PREFIX, COUNT) == (finding.kind, finding.recovered)
    assert ("full", "normal")[settings.endswith("normal")] == facts["settings"]["synchronous"]
    return [word for _, _, word in facts["reached"]]


def test_only_one_connection_has_the_lock_and_the_other_is_told_at_once(tmp_path: Path) -> None:
    site = Site(scenario("delete_full").orders, str(tmp_path))
    one, other = (site.open_database() for _ in range(2))
    assert isinstance(one, CrowdedDatabase)
    assert isinstance(other, CrowdedDatabase)
    one.create(site.work.first_tables, site.work.initial)
    assert 0 == one.claim(*site.work.last)
    assert other.claim(*site.work.last) is None
    one.carry_out(site.work.transaction(1))
    assert one.finish()
    assert 1 == other.claim(*site.work.last)
    other.rollback()
    assert 1 == one.claim(*site.work.last)
    one.rollback()
    for database in (one, other):
        database.close()


def test_a_writer_that_fails_ends_the_others_and_is_told(tmp_path: Path) -> None:
    site = Site(scenario("wal_full").orders, str(tmp_path))
    database = site.open_database()
    database.create(site.work.first_tables, site.work.initial)
    database.close()

    def mark(text: str) -> None:
        if text == "begin-5":
            raise ValueError("no mark")

    with pytest.raises(RuntimeError, match=r"no mark|another writer has failed"):
        writers.run(site, mark)


def test_situations_say_who_came_after_whom() -> None:
    commits = [writers.Commit(1, 0, 0, 0), writers.Commit(2, 0, 1, 3), writers.Commit(3, 1, 1, 0, (situations.EARLY,))]
    commits.append(writers.Commit(4, 1, 1, 0))
    assert [
        ("ack", 2, situations.BUSY), ("ack", 2, situations.OTHER_THREAD), ("ack", 3, situations.OTHER_WRITER),
        ("ack", 3, situations.EARLY),
    ] == list(writers.reached_situations(commits))  # fmt: skip


def test_it_is_measured_by_name_and_only_with_engines_that_can() -> None:
    assert (2, 2) == Work("writers", 1, 3).writers
    assert (1, 1) == Work("ledger", 1, 3).writers
    assert matrix.select(["sqlite-ext4-wal_full.writers_torn", "sqlite-ext4-wal_full.writers+eatmydata_torn"])
    with pytest.raises(UsageError):
        matrix.select(["lmdb-ext4-default.writers_torn"])
