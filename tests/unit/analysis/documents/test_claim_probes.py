"""The probes for real: each gives its claims a verdict, its controls fire, and a probe that is blind is noticed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rig.analysis.documents import loader, measuring
from rig.analysis.documents.answer import decide
from rig.analysis.documents.claim import Claim, ClaimVerdict, Probe
from rig.analysis.documents.crash import Evidence
from rig.analysis.documents.probes import PROBES, Unmeasurable, dbbench, probe
from rig.analysis.documents.probes.calls import VfsCall, counting
from rig.analysis.documents.probes.databases import connect, connect_counting, fill, insert, pragma
from rig.contract.errors import VmError

CLAIMS = [claim for document in loader.documents() for claim in document.claims]
# The probes count syncs and wait for none, so they may run where a sync costs nothing.
MEMORY = Path("/dev/shm")  # noqa: S108 - removed by the fixture


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as made:
        yield Path(made)


class Counted:
    """Notes how many probes were planned and carried out."""

    planned_count = judged_count = 0

    def says(self, text: str) -> None:
        raise AssertionError(f"nothing is to be said, but: {text}")

    def expect(self, count: int) -> None:
        self.planned_count += count

    def advance(self, count: int) -> None:
        self.judged_count += count


def no_guest(filesystem: str, name: str) -> probe.Figures:
    raise VmError(f"no machine for {filesystem}.{name}")


def of_probe(name: str) -> list[Claim]:
    return [claim for claim in CLAIMS if isinstance(claim.experiment, Probe) and claim.experiment.name == name]


# Rounds of a benchmark that take half a minute.
SLOW = {"log_arms", "amplification"}


@pytest.mark.parametrize("name", sorted(set(PROBES) - SLOW))
def test_a_probe_decides_its_claims(name: str, folder: Path) -> None:
    figures = PROBES[name](folder)
    answers = [decide(claim, figures) for claim in of_probe(name)]
    assert answers
    open_ones = [f"{one.claim.id}: {one.why}" for one in answers if one.verdict is ClaimVerdict.NOT_MEASURED]
    # What takes time may be disturbed by other tests; then its control says so.
    assert [] == [why for why in open_ones if name != "reads_beside_log" or "control" not in why]
    assert all(one.truth for one in answers if one.verdict in {ClaimVerdict.REFUTED, ClaimVerdict.IMPRECISE})


@pytest.mark.parametrize(("level", "syncs"), [("off", []), ("normal", []), ("full", ["wal"]), ("extra", ["wal"])])
def test_the_syncs_of_a_commit_in_wal_are_the_documented_ones(level: str, syncs: list[str], folder: Path) -> None:
    with (
        counting() as calls,
        closing(connect_counting(folder / "a.db", journal_mode="wal", synchronous=level)) as connection,
    ):
        fill(connection, 10)
        calls.take()
        insert(connection, 1)
        assert syncs == [call.file for call in calls.take().calls if call.what == "sync"]


def test_the_syncs_of_a_commit_with_delete_are_the_documented_ones_in_their_order(folder: Path) -> None:
    with counting() as calls, closing(connect_counting(folder / "a.db", synchronous="extra")) as connection:
        fill(connection, 10)
        calls.take()
        insert(connection, 1)
        found = [call.file for call in calls.take().calls if call.what == "sync"]
    # The directory is synced inside the first sync of the journal, so it is noted on either side of it.
    assert ["database", "directory", "directory", "journal", "journal"] == sorted(found)
    assert "directory" == found[-1]


def test_written_bytes_are_those_that_the_files_got(folder: Path) -> None:
    path = folder / "a.db"
    with counting() as calls, closing(connect_counting(path, journal_mode="wal", wal_autocheckpoint=0)) as connection:
        fill(connection, 1000)
        calls.take()
        before = path.with_name("a.db-wal").stat().st_size
        insert(connection, 20)
        assert path.with_name("a.db-wal").stat().st_size - before == calls.take().bytes_written("wal")


def test_a_connection_that_is_not_counted_leaves_no_calls(folder: Path) -> None:
    with counting() as calls, closing(connect(folder / "a.db")) as connection:
        fill(connection, 10)
        # Locks and directories are counted in the process, no matter which code asks for them.
        assert {"lock", "sync"} >= {call.what for call in calls.seen}
        assert not [call for call in calls.seen if call.file not in {"", "directory"}]


def test_nothing_is_counted_outside_the_block(folder: Path) -> None:
    with counting() as calls, closing(connect_counting(folder / "a.db")) as connection:
        fill(connection, 10)
    assert calls.take().calls
    with closing(connect_counting(folder / "a.db")) as connection:
        insert(connection, 1)
    assert () == calls.take().calls


def test_what_is_raised_inside_a_call_of_the_library_is_not_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(list[VfsCall]):
        def append(self, _: VfsCall) -> None:
            raise KeyboardInterrupt

    def interrupt() -> None:
        with counting() as calls, closing(connect_counting(folder / "a.db")) as connection:
            monkeypatch.setattr(calls, "seen", Full())
            with pytest.raises(sqlite3.OperationalError):
                fill(connection, 10)

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    with counting() as calls, closing(connect_counting(folder / "b.db")) as connection:
        fill(connection, 10)
        assert calls.take().calls


def test_a_pragma_reads_back_what_it_set(folder: Path) -> None:
    with closing(connect(folder / "a.db")) as connection:
        assert "wal" == pragma(connection, "journal_mode", "wal")
        assert "wal" == pragma(connection, "journal_mode")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unmeasurable("no such library here"), "no such library here"),
        (sqlite3.OperationalError("disk I/O error"), "failed: OperationalError: disk I/O error"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ZeroDivisionError("division by zero"), "failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_probe_that_cannot_be_carried_out_leaves_its_claims_not_measured(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> probe.Figures:
        raise error

    monkeypatch.setattr(measuring, "PROBES", {**PROBES, "default_mode": fails})
    documents = measuring.select(loader.documents(), ["S0-1"])
    ((answer,),) = [one.answers for one in measuring.measure(documents, Evidence(), [], Counted(), no_guest)]
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert words in answer.why


OLD_DB_BENCH = """#!/bin/sh
# As db_bench wrote before it counted operations in its reports.
for word; do case $word in
--db=*) mkdir -p "${word#--db=}" ;;
--num=20000000) long=yes ;;
--benchmarks=*) name=${word#--benchmarks=} ;;
esac; done
echo "$name : 1.0 micros/op 1000 ops/sec; 1.0 MB/s"
[ "$name$long" = fillseqyes ] && echo "finished 1000 ops" >&2 && exec sleep 60
exit 0
"""


@pytest.mark.parametrize("claim", ["S4-3", "S4-5", "S4-10"])
def test_a_db_bench_that_says_it_in_another_form_leaves_its_claims_not_measured(
    claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "db_bench").write_text(OLD_DB_BENCH)
    (tmp_path / "db_bench").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    documents = measuring.select(loader.documents(), [claim])
    ((answer,),) = [one.answers for one in measuring.measure(documents, Evidence(), [], Counted(), no_guest)]
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert "or in another form" in answer.why


def test_without_a_directory_in_memory_no_log_is_said_to_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbbench, "_MEMORY", folder / "gone")
    monkeypatch.setattr(dbbench, "_rate", lambda *_: 1000.0)
    with pytest.raises(Unmeasurable, match="so no log can be kept in memory"):
        dbbench.log_arms(folder)


def test_a_probe_runs_once_for_all_its_claims_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    counted = Counted()
    documents = measuring.select(loader.documents(), ["S1-5", "S1-6", "S1-7"])
    (answered,) = measuring.measure(documents, Evidence(), [], counted, no_guest)
    assert (1, 1) == (counted.planned_count, counted.judged_count)
    assert [ClaimVerdict.CONFIRMED] * 3 == [one.verdict for one in answered.answers]
    assert [] == list(tmp_path.iterdir())


def test_a_machine_that_is_lost_leaves_its_claims_not_measured() -> None:
    documents = measuring.select(loader.documents(), ["S3-7", "S3-10", "S3-11"])
    counted = Counted()
    (answered,) = measuring.measure(documents, Evidence(), [], counted, no_guest)
    assert (2, 2) == (counted.planned_count, counted.judged_count)
    assert ["no machine for btrfs.rot", *["no machine for btrfs.share"] * 2] == [
        one.why.partition("machine: ")[2] for one in answered.answers
    ]
