"""S4 by RocksDB's own benchmark, which fills a database with and without the WAL, in order and at random, and reads it.

The document writes one record a batch by one thread, the worst case for a log. The arms `batch100` and `8threads` write
as many records, 100 in a batch, or by eight threads whose writes RocksDB groups. The arms `readrandom` first fill at
random, outside their throughput and latency: db_bench gives both for the benchmark alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rig.analysis.documents.replications import dbbench, fills, s4
from rig.contract.errors import EngineError
from rig.speed.trials.replication import ArmTask
from rig.speed.trials.stopwatch import Stopwatch

_LIMIT_S = 3600
_THREAD_COUNT = 8
_THREADS = f"{_THREAD_COUNT}threads"


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Fill a database, and wait until it compacts no more."""
    benchmark, log, *more = task.arm.split("-")
    path = Path(task.directory, "db")
    record_count = task.scale_count(fills.RECORDS)
    options = {
        "num": record_count,
        "write_buffer_size": task.scale_count(fills.BUFFER_BYTES),
        "disable_wal": log == "nowal",
        "seed": task.seed,
        "statistics": True,
        **_shape_options(more, record_count),
    }
    is_read = benchmark == fills.READING
    filling = fills.AT_RANDOM if is_read else benchmark
    benchmarks = [filling, "flush", "waitforcompaction", *([benchmark] if is_read else [])]
    words = dbbench.command(str(path), ",".join(benchmarks), options)
    with watch.running():
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise EngineError(f"{dbbench.PROGRAM} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    result = dbbench.reading(done.stdout, benchmark)
    user_bytes = dbbench.reading(done.stdout, filling).count * fills.RECORD_BYTES
    s4.tell(path, done.stdout + done.stderr, user_bytes, watch)
    watch.count("mib_per_s", result.mib_per_s)
    watch.count("us_per_operation", result.micros_per_operation)
    watch.count("transactions", result.count)
    watch.count("rows", result.count)
    watch.count("user_bytes", user_bytes)


def _shape_options(words: Sequence[str], record_count: int) -> dict[str, int]:
    """Return the options that write as many records in another shape."""
    if words == [fills.BATCH]:
        return {"batch_size": fills.RECORDS_OF_BATCH}
    if words == [_THREADS]:
        # The number for each thread.
        return {"threads": _THREAD_COUNT, "writes": record_count // _THREAD_COUNT}
    assert not words, f"no arm of S4 is of the shape {words}"
    return {}


# Arms that the document does not measure.
_FURTHER = (*(f"{fills.AT_RANDOM}-{{log}}-{shape}" for shape in (fills.BATCH, _THREADS)), f"{fills.READING}-{{log}}")

REPLICATION = s4.replication(
    "a million records by db_bench, with and without the WAL", carry_out, dbbench.missing, _FURTHER
)
