"""The document on the WAL of RocksDB, carried out in small by db_bench itself, and through the binding for Python."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rig.analysis.documents.replications import dbbench, fills, s4_dbbench, s4_rocksdb
from rig.contract.errors import EngineError
from rig.front import cli
from rig.speed.trials.replication import ArmTask, Replication
from rig.speed.trials.stopwatch import Stopwatch

# Needs db_bench.
pytestmark = pytest.mark.slow

S4, BINDING = s4_dbbench.REPLICATION, s4_rocksdb.REPLICATION
SCALE = 0.01
RECORDS = 10_000


def carry_out(folder: Path, replication: Replication, arm: str) -> dict[str, Any]:
    assert "" == replication.obstacle(arm, str(folder))
    watch = Stopwatch(folder, [])
    replication.carry_out(ArmTask(arm, str(folder), 1, SCALE), watch)
    return watch.facts


@pytest.fixture(scope="module")
def of_arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Carry out all arms at once: db_bench waits five seconds before it looks whether anything is compacted."""

    def carried(arm: str) -> dict[str, Any]:
        return carry_out(tmp_path_factory.mktemp(arm), S4, arm)

    with ThreadPoolExecutor(len(S4.arms)) as pool:
        return dict(zip(S4.arms, pool.map(carried, S4.arms), strict=True))


@pytest.mark.parametrize("arm", S4.arms)
def test_every_arm_counts_its_metrics_and_writes_a_log_only_if_it_is_to(
    arm: str, of_arms: dict[str, dict[str, Any]]
) -> None:
    facts = of_arms[arm]
    counts, back = facts["counts"], facts["read_back"]
    assert {metric.name for metric in S4.metrics} <= set(counts)
    assert RECORDS == counts["transactions"]
    assert RECORDS * 116 == counts["user_bytes"]
    logged = counts["write_amplification"] - counts["write amplification without the log"]
    # A record in the log has its key, its value and a header of some 15 bytes, and the records of a batch share most of
    # it. How many records of several threads share one is up to the host.
    alone, shared = 131 / 116, 119.2 / 116
    _, log, *shape = arm.split("-")
    low, high = {"batch100": (shared, shared), "8threads": (shared, alone)}.get("".join(shape), (alone, alone))
    has_log = log == "wal"
    assert low - 0.02 < logged < high + 0.02 if has_log else 0 == logged
    assert ("written" if has_log else "not written") == back["wal"]
    assert str(round((64 << 20) * SCALE)) == back["write_buffer_size"]
    assert 0.3 < counts["space_amplification"] < 2


@pytest.mark.parametrize("arm", BINDING.arms)
def test_the_binding_writes_the_same_log_as_db_bench(tmp_path: Path, arm: str) -> None:
    facts = carry_out(tmp_path, BINDING, arm)
    counts, back = facts["counts"], facts["read_back"]
    assert {metric.name for metric in BINDING.metrics} <= set(counts)
    assert (RECORDS, RECORDS * 116) == (counts["transactions"], counts["user_bytes"])
    logged = counts["write_amplification"] - counts["write amplification without the log"]
    has_log = "-wal" in arm
    # A batch has 12 bytes in the log and a record 3 more than its key and value.
    assert pytest.approx((119.12 if "batch100" in arm else 131) / 116 if has_log else 0) == logged
    assert ("written" if has_log else "not written") == back["wal"]
    assert str(round((64 << 20) * SCALE)) == back["write_buffer_size"]
    # Values compress to half, as the values of db_bench do.
    assert "kSnappyCompression" == back["compression"]
    # What is in memory when the files are measured depends on how far a flush had got.
    assert 0.25 < counts["space_amplification"] < 0.8
    # Of draws with replacement.
    found = counts.get("reads that found a record", 0)
    assert 0.62 < found / RECORDS < 0.645 if "readrandom" in arm else 0 == found


def test_what_is_in_memory_is_written_out_before_the_bytes_are_counted(tmp_path: Path) -> None:
    counts = carry_out(tmp_path, BINDING, "binding-fillseq-nowal")["counts"]
    # Nothing is compacted so early, so each record is in one table.
    assert pytest.approx(counts["space_amplification"], rel=0.01) == counts["write_amplification"]
    assert list((tmp_path / "db").glob("*.sst"))
    assert [] == [path.name for path in (tmp_path / "db").glob("*.log") if path.stat().st_size]


def test_the_document_stands_beside_both_with_the_same_figures() -> None:
    assert [f"binding-{one.arm}" for one in S4.figures] == [one.arm for one in BINDING.figures]
    assert [f"binding-{one.base}" for one in S4.figures] == [one.base for one in BINDING.figures]
    assert [(one.line, one.ratio) for one in S4.figures] == [(one.line, one.ratio) for one in BINDING.figures]
    assert {"binding-readrandom-nowal"} == {BINDING.bases[f"binding-readrandom-{log}"] for log in ("wal", "nowal")}


def test_what_it_says_is_read_in_our_units() -> None:
    found = dbbench.reading("fillseq : 2.000 micros/op 524288 ops/sec 0.2 seconds 10000 operations;", "fillseq")
    assert dbbench.BenchmarkResult(2.0, 524_288, 10_000) == found
    assert 58 == found.mib_per_s


def test_its_figures_are_those_of_every_row_and_ratios_of_their_values() -> None:
    assert len(S4.metrics) * 3 == len(S4.figures)
    assert {42, 43, 44} == {figure.line for figure in S4.figures}
    assert all(figure.ratio == (figure.value or 0) / (figure.base_value or 1) for figure in S4.figures)


def test_each_arm_with_a_log_is_compared_with_the_same_without() -> None:
    further = [arm for arm in S4.arms if arm not in {figure.arm for figure in S4.figures} | {"fillseq-nowal"}]
    assert {"fillrandom-wal-batch100", "fillrandom-wal-8threads", "readrandom-wal"} <= set(further)
    for arm in further:
        assert arm.replace("-wal", "-nowal") == S4.bases[arm]


def test_without_db_bench_its_arms_are_left_out_and_the_bindings_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["speed", "--document", "S4", "--dir", str(tmp_path), "--scale", "0.001", "--repeats", "1"]
    result = CliRunner().invoke(cli.main, [*words, "--json", str(tmp_path / "s.json")], env={"COLUMNS": "160"})
    assert 0 == result.exit_code, result.output
    (said,) = [line for line in result.output.splitlines() if "left out" in line and "rocksdb-tools" in line]
    assert all(arm in said for arm in S4.arms)
    assert said.endswith("are left out: " + dbbench.missing())
    stored = json.loads((tmp_path / "s.json").read_text())
    assert set(S4.arms) <= set(stored["absent"])
    assert (
        dict.fromkeys(BINDING.arms, "rocksdb").items()
        <= {arm: facts["engine"] for arm, facts in stored["arms"].items()}.items()
    )
    assert set(BINDING.arms) | set(S4.arms) < set(stored["arms"]) | set(stored["absent"])
    assert "binding-fillseq-wal / binding-fillseq-nowal" in result.output


def test_where_nothing_is_installed_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    # Python finds no package that is not yet imported but the rig's own.
    for package in ("plyvel", "rocksdict"):
        monkeypatch.setitem(sys.modules, package, None)
    result = CliRunner().invoke(cli.main, ["speed", "--document", "S4", "--dir", str(tmp_path)])
    assert 2 == result.exit_code
    assert "nothing can be measured here: db_bench is not installed" in result.output
    assert 1 == result.output.count("rocksdb-tools")
    assert 1 == result.output.count("pip install rocksdict")
    assert 1 == result.output.count("pip install plyvel")


def test_a_package_that_is_not_installed_is_named() -> None:
    assert "pip install never_heard_of" in fills.missing("never_heard_of")
    assert "" == fills.missing("rocksdict")


def test_what_db_bench_does_not_say_is_no_zero() -> None:
    with pytest.raises(EngineError, match="or in another form"):
        dbbench.reading("fillseq : 3 seconds", "fillseq")
    with pytest.raises(EngineError, match="no statistic rocksdb"):
        dbbench.statistic("", dbbench.LOG_BYTES)
