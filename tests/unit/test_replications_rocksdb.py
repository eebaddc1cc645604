"""The document on the WAL of RocksDB, carried out in small by db_bench itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rig.contract.errors import EngineError
from rig.engines import named
from rig.engines.replications import Task, replications_of
from rig.engines.rocksdb import dbbench
from rig.front import cli
from rig.trials.stopwatch import Stopwatch

(S4,) = replications_of(named("rocksdb"))
SCALE = 0.01
RECORDS = 10_000


@pytest.mark.parametrize("arm", S4.arms)
def test_every_arm_counts_its_metrics_and_writes_a_log_only_if_it_is_to(tmp_path: Path, arm: str) -> None:
    watch = Stopwatch(tmp_path, [])
    S4.carry_out(Task(arm, str(tmp_path), 1, SCALE), watch)
    counts, back = watch.facts["counts"], watch.facts["read_back"]
    assert {metric.name for metric in S4.metrics} <= set(counts)
    assert RECORDS == counts["transactions"]
    assert RECORDS * 116 == counts["user_bytes"]
    logged = counts["write_amplification"] - counts["write amplification without the log"]
    # A record in the log has its key, its value and a header of some 15 bytes, of which a batch shares most. How many
    # records of several threads share one is up to the host.
    alone, shared = 131 / 116, 119.2 / 116
    _, log, *shape = arm.split("-")
    low, high = {"batch100": (shared, shared), "8threads": (shared, alone)}.get("".join(shape), (alone, alone))
    has_log = log == "wal"
    assert low - 0.02 < logged < high + 0.02 if has_log else 0 == logged
    assert ("written" if has_log else "not written") == back["wal"]
    assert str(round((64 << 20) * SCALE)) == back["write_buffer_size"]
    assert 0.3 < counts["space_amplification"] < 2


def test_what_it_says_is_read_in_our_units() -> None:
    found = dbbench.reading("fillseq : 2.000 micros/op 524288 ops/sec 0.2 seconds 10000 operations;", "fillseq")
    assert dbbench.Reading(2.0, 524_288, 10_000) == found
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


def test_without_db_bench_the_command_says_which_package_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(cli.main, ["speed", "--document", "S4", "--dir", str(tmp_path)])
    assert 2 == result.exit_code
    assert "nothing can be measured here: db_bench is not installed" in result.output
    assert 1 == result.output.count("rocksdb-tools")


def test_what_db_bench_does_not_say_is_no_zero() -> None:
    with pytest.raises(EngineError, match="or in another form"):
        dbbench.reading("fillseq : 3 seconds", "fillseq")
    with pytest.raises(EngineError, match="no statistic rocksdb"):
        dbbench.statistic("", dbbench.LOG_BYTES)
