"""S4: RocksDB's own benchmark fills a database with and without the WAL, in order and at random.

Source: 004_b69e233fac2395fd.txt, lines 12 to 44: throughput, latency, and space and write amplification of fillseq and
fillrandom, as means of ten runs of a million records. The document does not say how it got the amplifications. Here
that of space is the bytes of all table files over those of the records, after a flush and the end of all compaction;
that of writes is what was written to tables and to the log over the same. A count beside it leaves out the log, as does
the table that db_bench itself prints. Flush and compaction are in the measured time, but not in throughput and
latency, which db_bench gives for the benchmark alone. At a smaller scale memtables are smaller by as much, so that they
fill as often.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.contract.errors import EngineError
from rig.engines.replications import Figure, Metric, Replication, Stopwatch, Task
from rig.engines.rocksdb import dbbench

_RECORDS = 1_000_000
_MEMTABLE_BYTES = 64 << 20
_LIMIT_S = 3600


def carry_out(task: Task, watch: Stopwatch) -> None:
    """Fill a database, and wait until it compacts no more."""
    benchmark, _, log = task.arm.partition("-")
    path = Path(task.directory, "db")
    options = {
        "num": task.scaled(_RECORDS),
        "write_buffer_size": task.scaled(_MEMTABLE_BYTES),
        "disable_wal": log == "nowal",
        "seed": task.seed,
        "statistics": True,
    }
    words = dbbench.command(str(path), f"{benchmark},flush,waitforcompaction", options)
    with watch.running():
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise EngineError(f"{dbbench.PROGRAM} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    said, found = done.stdout + done.stderr, dbbench.reading(done.stdout, benchmark)
    logged = dbbench.statistic(said, dbbench.LOG_BYTES)
    tables = dbbench.statistic(said, dbbench.FLUSHED_BYTES) + dbbench.statistic(said, dbbench.COMPACTED_BYTES)
    user_bytes = found.count * dbbench.RECORD_BYTES
    watch.reads_back({"wal": "written" if logged else "not written", **_options(path)})
    watch.count("mib_per_s", found.mib_per_s)
    watch.count("us_per_operation", found.micros_per_operation)
    watch.count("space_amplification", sum(one.stat().st_size for one in path.glob("*.sst")) / user_bytes)
    watch.count("write_amplification", (logged + tables) / user_bytes)
    watch.count("write amplification without the log", tables / user_bytes)
    watch.count("transactions", found.count)
    watch.count("rows", found.count)
    watch.count("user_bytes", user_bytes)


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

REPLICATIONS = (
    Replication(
        name="S4",
        file="004_b69e233fac2395fd.txt",
        about="a million records by db_bench, with and without the WAL",
        arms=tuple(_ROWS),
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
        bases=_BASES,
        hindrance=hindrance,
        absent={"readrandom (line 15)": "the document names it and gives no figure"},
        needed_bytes=1 << 30,
    ),
)
