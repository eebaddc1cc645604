"""The documents' own workloads: every arm in small, what the original script does not notice, and the figures."""

from __future__ import annotations

import gc
import re
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rig.analysis.documents.replications import replications, s0, s1, s2, s3
from rig.analysis.judging.speed import figure_comparisons
from rig.front import cli
from rig.speed import session
from rig.speed.ondisk import on_disk
from rig.speed.trials.replication import ArmTask, Replication
from rig.speed.trials.stopwatch import Stopwatch

REPLICATIONS = {replication.name: replication for replication in replications() if replication.engine == "sqlite"}
SCALE = 0.02
ARMS = [(name, arm) for name, replication in REPLICATIONS.items() for arm in replication.arms]


class Silent:
    def says(self, text: str) -> None: ...

    def expect(self, cut_count: int) -> None: ...

    def advance(self, cut_count: int) -> None: ...


def carry_out(folder: Path, replication: Replication, arm: str, scale: float = SCALE) -> dict[str, Any]:
    watch = Stopwatch(folder, [])
    replication.carry_out(ArmTask(arm, str(folder), 1, scale), watch)
    return watch.facts


@pytest.mark.parametrize(("name", "arm"), ARMS)
def test_every_arm_counts_its_metrics_and_reads_back_what_it_is_called(tmp_path: Path, name: str, arm: str) -> None:
    replication = REPLICATIONS[name]
    if why := replication.obstacle(arm, str(tmp_path)):
        # Few file systems can do without copy on write. What a test calls missing must really be missing.
        assert "this file system does not know the attribute" in why
        with pytest.raises(OSError, match=r".*"):
            carry_out(tmp_path, replication, arm)
        return
    facts = carry_out(tmp_path, replication, arm)
    counts = facts["counts"]
    assert {metric.name for metric in replication.metrics} <= set(counts)
    assert counts["transactions"] == len(facts["latencies_ns"]) > 0
    assert counts["user_bytes"] > 0
    back = facts["read_back"]
    words = re.split(r"[-_, ]+", arm.removeprefix("verbatim-").removeprefix("honest-"))
    assert (words[0] if words[0] in {"wal", "off"} else "delete") == back["journal_mode"]
    assert next((word for word in words[1:] if word in {"off", "normal", "full"}), "full") == back["synchronous"]


def test_a_page_size_after_wal_has_no_effect_and_before_it_has() -> None:
    assert ["page_size=32768", "journal_mode=wal", "synchronous=full"] == s2._pragmas("wal-32k-full")
    assert ["journal_mode=wal", "page_size=32768", "synchronous=normal"] == s2._pragmas("wal-first-32k-normal")


@pytest.mark.parametrize(("arm", "size"), [("wal-32k-full", "32768"), ("wal-first-32k-full", "4096")])
def test_the_order_of_the_pragmas_decides_the_size_of_pages(tmp_path: Path, arm: str, size: str) -> None:
    assert size == carry_out(tmp_path, s2.REPLICATION, arm)["read_back"]["page_size"]


def test_an_error_that_the_script_drops_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(tmp_path / "test.db", isolation_level=None)
    connection.execute("CREATE TABLE test_table (id INTEGER PRIMARY KEY, value TEXT)")
    role = s0._Role()
    connection.execute("BEGIN IMMEDIATE")
    # The writer gives up after the time that the driver waits by default, which is five seconds.
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
    writer = threading.Thread(target=s0._write_all, args=(str(tmp_path), 3, role))
    writer.start()
    writer.join()
    connection.execute("ROLLBACK")
    connection.close()
    assert {"errors": 1} == dict(role.counts)
    # The script leaves the connection that failed to the garbage collector.
    gc.collect()
    assert 0 == s0._row_count(str(tmp_path))


def test_reads_of_rows_that_are_not_there_are_counted(tmp_path: Path) -> None:
    verbatim = carry_out(tmp_path / _make(tmp_path, "a"), s0.REPLICATION, "verbatim-wal")["counts"]
    assert verbatim["reads that found no row"] > 0
    honest = carry_out(tmp_path / _make(tmp_path, "b"), s0.REPLICATION, "honest-wal_full", 0.1)["counts"]
    assert (0, 0) == (honest["reads that found no row"], honest["rows acknowledged and not in the table"])


def _make(folder: Path, name: str) -> str:
    (folder / name).mkdir()
    return name


def test_only_an_error_that_says_busy_is_tried_again() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError) as raised:
        connection.execute("SELECT * FROM absent")
    connection.close()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        s0._require_busy(raised.value)


def test_three_processes_insert_all_rows_and_leave_a_closed_database(tmp_path: Path) -> None:
    facts = carry_out(tmp_path, s3.REPLICATION, "wal")
    connection = sqlite3.connect(tmp_path / "test.db")
    (count,) = connection.execute("SELECT count(*) FROM result").fetchone()
    connection.close()
    assert 3 * 50 == count == facts["counts"]["rows"]
    assert {"test.db"} == set(facts["files"])


def test_an_attribute_that_a_file_system_ignores_or_refuses_leaves_its_arm_out(tmp_path: Path) -> None:
    assert "" == s3.obstacle("wal", str(tmp_path))
    for arm in ("wal-nocow", "wal-nocompress"):
        why = s3.obstacle(arm, str(tmp_path))
        assert not why or arm.partition("-")[2] in why
    assert [] == list(tmp_path.iterdir())


def test_figures_name_arms_that_exist_and_ratios_that_their_values_have() -> None:
    for replication in REPLICATIONS.values():
        names = {metric.name for metric in replication.metrics}
        assert replication.figures
        for figure in replication.figures:
            assert {figure.arm, figure.base} <= set(replication.arms)
            assert figure.metric in names
            if figure.value is not None and figure.base_value is not None:
                assert pytest.approx(figure.value / figure.base_value) == figure.ratio
        assert set(replication.bases) | set(replication.bases.values()) <= set(replication.arms)


def test_the_size_of_the_table_is_that_of_the_arm(tmp_path: Path) -> None:
    carry_out(tmp_path, s1.REPLICATION, "wal_off, 1000 rows", 0.1)
    connection = sqlite3.connect(tmp_path / "test.db")
    (count,) = connection.execute("SELECT count(*) FROM sample").fetchone()
    connection.close()
    assert 100 + 10 == count


def test_a_document_is_measured_beside_its_own_ratios(tmp_path: Path) -> None:
    plan = session.of_document([s3.REPLICATION], 1, SCALE)
    with on_disk(tmp_path, plan.needed_bytes) as bench:
        found = session.measure(plan, bench, 2, 1, Silent())
    assert "003_4d9a875d495f2087.txt" == found.document
    lines = {one.figure.line for one in figure_comparisons(found)}
    assert 50 in lines
    assert {"delete-nocow", "wal-nocow"} & set(found.absent) or {42, 58} <= lines


def test_the_command_shows_the_documents_ratios(tmp_path: Path) -> None:
    words = ["speed", "--document", "S3", "--dir", str(tmp_path), "--scale", "0.01", "--repeats", "1"]
    result = CliRunner().invoke(cli.main, words, env={"COLUMNS": "140"})
    assert 0 == result.exit_code, result.output
    assert "S3: 003_4d9a875d495f2087.txt" in result.output
    assert "wal / delete" in result.output
