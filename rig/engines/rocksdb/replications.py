"""S4: RocksDB's own benchmark fills a database with and without the WAL, in order and at random, and reads it.

Source: 004_b69e233fac2395fd.txt, lines 12 to 44: throughput, latency, and space and write amplification of fillseq and
fillrandom, as means of ten runs of a million records. The document does not say how it got the amplifications. Here
that of space is the bytes of all table files over those of the records, after a flush and the end of all compaction;
that of writes is what was written to tables and to the log over the same. A count beside it leaves out the log, as does
the table that db_bench itself prints. Flush and compaction are in the measured time, but not in throughput and
latency, which db_bench gives for the benchmark alone. At a smaller scale memtables are smaller by as much, so that they
fill as often.

The document writes one record a batch by one thread, the worst case for a log. The arms `batch100` and `8threads` write
as many records, 100 in a batch, or by eight threads whose writes RocksDB groups. The arms `readrandom` fill at random
first, which is not in their throughput and latency.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rig.contract.errors import EngineError
from rig.engines.replications import Figure, Metric, Replication, Stopwatch, Task
from rig.engines.rocksdb import dbbench

_RECORDS = 1_000_000
_MEMTABLE_BYTES = 64 << 20
_LIMIT_S = 3600
_RECORDS_OF_BATCH, _THREAD_COUNT = 100, 8
_BATCH, _THREADS = f"batch{_RECORDS_OF_BATCH}", f"{_THREAD_COUNT}threads"
_READING = "readrandom"


def carry_out(task: Task, watch: Stopwatch) -> None:
    """Fill a database, and wait until it compacts no more."""
    benchmark, log, *more = task.arm.split("-")
    path = Path(task.directory, "db")
    options = {
        "num": task.scaled(_RECORDS),
        "write_buffer_size": task.scaled(_MEMTABLE_BYTES),
        "disable_wal": log == "nowal",
        "seed": task.seed,
        "statistics": True,
        **_shaped(more, task.scaled(_RECORDS)),
    }
    filling = "fillrandom" if benchmark == _READING else benchmark
    benchmarks = [filling, "flush", "waitforcompaction", *([benchmark] if benchmark == _READING else [])]
    words = dbbench.command(str(path), ",".join(benchmarks), options)
    with watch.running():
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise EngineError(f"{dbbench.PROGRAM} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    said, found = done.stdout + done.stderr, dbbench.reading(done.stdout, benchmark)
    logged = dbbench.statistic(said, dbbench.LOG_BYTES)
    tables = dbbench.statistic(said, dbbench.FLUSHED_BYTES) + dbbench.statistic(said, dbbench.COMPACTED_BYTES)
    user_bytes = dbbench.reading(done.stdout, filling).count * dbbench.RECORD_BYTES
    watch.reads_back({"wal": "written" if logged else "not written", **_options(path)})
    watch.count("mib_per_s", found.mib_per_s)
    watch.count("us_per_operation", found.micros_per_operation)
    watch.count("space_amplification", sum(one.stat().st_size for one in path.glob("*.sst")) / user_bytes)
    watch.count("write_amplification", (logged + tables) / user_bytes)
    watch.count("write amplification without the log", tables / user_bytes)
    watch.count("transactions", found.count)
    watch.count("rows", found.count)
    watch.count("user_bytes", user_bytes)


def _shaped(words: Sequence[str], record_count: int) -> dict[str, int]:
    """Return the options that write as many records in another shape."""
    if words == [_BATCH]:
        return {"batch_size": _RECORDS_OF_BATCH}
    if words == [_THREADS]:
        # Of each thread.
        return {"threads": _THREAD_COUNT, "writes": record_count // _THREAD_COUNT}
    assert not words, f"no arm of S4 is of the shape {words}"
    return {}


def hindrance(_arm: str, _directory: str) -> str:
    """Return why db_bench cannot be run here; empty if it can."""
    return dbbench.missing()


def _options(path: Path) -> dict[str, str]:
    """Return what RocksDB itself wrote down of its options."""
    lines = max(path.glob("OPTIONS-*")).read_text().splitlines()
    given = dict(line.strip().split("=", 1) for line in lines if "=" in line)
    return {name: given[name] for name in ("rocksdb_version", "write_buffer_size")}


# Arm -> the document's line and figures, in the order of the metrics. Its throughput is in MB/s.
_METRICS = ("mib_per_s", "us_per_operation", "space_amplification", "write_amplification")
_ROWS = {
    "fillseq-nowal": (41, (180.22, 0.61416, 2.667, 2.0)),
    "fillrandom-nowal": (42, (77.33, 1.43117, 1.625, 1.7)),
    "fillseq-wal": (43, (51.73, 2.13972, 2.06667, 2.0)),
    "fillrandom-wal": (44, (36.17, 3.06011, 1.625, 1.7)),
}
_BASES = {"fillrandom-nowal": "fillseq-nowal", "fillseq-wal": "fillseq-nowal", "fillrandom-wal": "fillrandom-nowal"}
# What the document does not measure, each beside the same without a log.
_SHAPES = (*(f"fillrandom-{{log}}-{shape}" for shape in (_BATCH, _THREADS)), f"{_READING}-{{log}}")
_FURTHER = {shape.format(log="wal"): shape.format(log="nowal") for shape in _SHAPES}

REPLICATIONS = (
    Replication(
        name="S4",
        file="004_b69e233fac2395fd.txt",
        about="a million records by db_bench, with and without the WAL",
        arms=(*_ROWS, *(arm for pair in _FURTHER.items() for arm in reversed(pair))),
        metrics=(
            Metric("mib_per_s", "MiB/s", more_is_better=True),
            Metric("us_per_operation", "us/op", more_is_better=False),
            Metric("space_amplification", "x space", more_is_better=False),
            Metric("write_amplification", "x written", more_is_better=False),
        ),
        figures=tuple(
            Figure(arm, base, metric, value / of, _ROWS[arm][0], value, of)
            for arm, base in _BASES.items()
            for metric, value, of in zip(_METRICS, _ROWS[arm][1], _ROWS[base][1], strict=True)
        ),
        carry_out=carry_out,
        bases=_BASES | _FURTHER | {arm: arm for arm in _FURTHER.values()},
        hindrance=hindrance,
        needed_bytes=1 << 30,
    ),
)
