"""The program that trusts the clock: right under a right clock, wrong under a wrong one in the documented ways."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.engines import opener
from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite.lastwriter import LastWriter
from rig.workloads import Work, ledger
from rig.workloads.oracle import Oracle

SEED = 3
QUICK = {"journal_mode": "memory", "synchronous": "off"}
HOUR_NS = 3_600 * 10**9
YEAR_NS = 365 * 24 * HOUR_NS
MADE_NS = 56 * YEAR_NS


def path_in(folder: Path) -> str:
    return str(folder / sqlite.FILE)


def write_commits(folder: Path, stamps_ns: Sequence[int]) -> None:
    """Make a database at `MADE_NS` and let each transaction read the next of these times."""
    clock = iter([MADE_NS, *stamps_ns])
    database = LastWriter(path_in(folder), QUICK, clock.__next__)
    database.create(ledger.TABLES, ledger.initial(SEED))
    for number in range(1, 1 + len(stamps_ns)):
        database.commit(ledger.transaction(SEED, number))
    database.close()


def finding_at(folder: Path, now_ns: int, count: int) -> Finding:
    oracle = Oracle(ledger.TABLES, Work("ledger", SEED, count).models, partial(ledger.transaction, SEED))
    return oracle.judge(lambda: LastWriter(path_in(folder), QUICK, lambda: now_ns))


@settings(max_examples=25)
@given(stamps_ns=st.lists(st.integers(MADE_NS - 9, MADE_NS + 9), max_size=9))
def test_a_transaction_is_carried_out_if_its_stamp_is_later_than_every_one_before_and_else_changes_nothing(
    stamps_ns: list[int],
) -> None:
    with TemporaryDirectory() as own, TemporaryDirectory() as other:
        write_commits(Path(own), stamps_ns)
        plain = sqlite.open_database(other, QUICK)
        plain.create(ledger.TABLES, ledger.initial(SEED))
        for rank, stamp_ns in enumerate(stamps_ns):
            if stamp_ns > max([MADE_NS, *stamps_ns[:rank]]):
                plain.commit(ledger.transaction(SEED, 1 + rank))
        database = LastWriter(path_in(Path(own)), QUICK, lambda: MADE_NS)
        assert plain.content(ledger.TABLES) == database.content(ledger.TABLES)
        assert [] == database.problems()
        database.close()
        plain.close()


def test_the_oracle_sees_the_ledger_as_ever_under_a_right_clock_and_a_lost_suffix_behind_one_that_went_back(
    tmp_path: Path,
) -> None:
    stamps_ns = [MADE_NS + rank for rank in range(1, 31)]
    write_commits(tmp_path, stamps_ns)
    assert Finding(FindingKind.PREFIX, 30) == finding_at(tmp_path, MADE_NS, 30)
    for name, wrong_ns in (("back", [one - YEAR_NS for one in stamps_ns[9:]]), ("stands", [stamps_ns[8]] * 21)):
        (tmp_path / name).mkdir()
        write_commits(tmp_path / name, [*stamps_ns[:9], *wrong_ns])
        assert Finding(FindingKind.PREFIX, 9) == finding_at(tmp_path / name, MADE_NS, 30)


@pytest.mark.parametrize("count", [1, 12, 30])
def test_the_books_are_closed_a_year_after_they_were_opened_and_not_before(tmp_path: Path, count: int) -> None:
    # It does not help that the workload's clock was ahead: it was right when the database was made.
    write_commits(tmp_path, [MADE_NS + rank * YEAR_NS for rank in range(1, 1 + count)])
    for now_ns in (0, MADE_NS, MADE_NS + YEAR_NS):
        assert Finding(FindingKind.PREFIX, count) == finding_at(tmp_path, now_ns, count)
    assert finding_at(tmp_path, MADE_NS + YEAR_NS + 1, count).kind in ("torn", "hole", "stale")
    # The loss is permanent: reopened later under a right clock, the ledger is still incomplete.
    assert FindingKind.PREFIX is not finding_at(tmp_path, MADE_NS, count).kind


def test_only_its_own_shim_puts_it_between_workload_and_engine_and_it_reads_the_wall_clock(tmp_path: Path) -> None:
    for shim in ("none", "eatmydata", "drop-wal-commit"):
        database = opener("rig.engines.sqlite", QUICK, shim, str(tmp_path))()
        assert sqlite.SqliteDatabase is type(database)
        database.close()
    database = opener("rig.engines.sqlite", QUICK, "lastwriter", str(tmp_path))()
    assert LastWriter is type(database)
    assert "memory" == database.settings()["journal_mode"]
    before_ns = time.time_ns()
    database.create(ledger.TABLES, ledger.initial(SEED))
    (made_ns,) = next(iter(database._connection.execute("SELECT made FROM stamps")))
    assert before_ns <= made_ns <= time.time_ns()
    database.close()


def test_a_file_that_is_no_database_is_the_engines_error_and_leaves_none_open(tmp_path: Path) -> None:
    (tmp_path / sqlite.FILE).write_bytes(b"no database " * 1000)
    assert "unopenable" == finding_at(tmp_path, MADE_NS, 1).kind
