"""The load of db_bench through a Python binding: records are filled in order or at random, and read at random.

By db_bench's defaults one thread puts records with keys of 16 bytes and values of 100 bytes that compress to half, one
or many in a batch. To fill at random it draws as many keys with replacement, so 63 % of all keys are there afterwards;
reads draw from all keys. Keys and values are made before the clock starts. The figures include the Python loop around
the calls. The throughput of reads counts a whole record for each read, found or not. Shipped to the guest: standard
library only.
"""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from rig.contract.errors import EngineError
from rig.speed.trials.replication import ArmTask, Metric
from rig.speed.trials.stopwatch import Stopwatch

# At scale 1, as in the document S4.
RECORDS = 1_000_000
BUFFER_BYTES = 64 << 20
KEY_BYTES, VALUE_BYTES = 16, 100
RECORD_BYTES = KEY_BYTES + VALUE_BYTES
RECORDS_OF_BATCH = 100
BATCH = f"batch{RECORDS_OF_BATCH}"
IN_ORDER, AT_RANDOM, READING = "fillseq", "fillrandom", "readrandom"
METRICS = (
    Metric("mib_per_s", "MiB/s", more_is_better=True),
    Metric("us_per_operation", "us/op", more_is_better=False),
    Metric("space_amplification", "x space", more_is_better=False),
    Metric("write_amplification", "x written", more_is_better=False),
)
_VALUES = 10_000
_SETTLED_LIMIT_S = 600
_PAUSE_S = 0.01


@dataclass(frozen=True)
class FillLoad:
    """One benchmark. If it reads, it first fills at random, outside its throughput and latency."""

    benchmark: str
    batch_records: int = 1

    @classmethod
    def of(cls, benchmark: str, shape: Sequence[str]) -> FillLoad:
        """Return the load that an arm names by a benchmark and perhaps a shape."""
        assert list(shape) in ([], [BATCH]), f"no load is of the shape {shape}"
        return cls(benchmark, RECORDS_OF_BATCH if shape else 1)


@dataclass(frozen=True)
class Binding:
    """The calls of a binding, as its users make them."""

    put: Callable[[bytes, bytes], object]
    get: Callable[[bytes], bytes | None]
    # The batch's `put` adds a record; the end of the block writes all added records.
    write_batch: Callable[[], AbstractContextManager[Any]]
    # Write the content of memory to tables, and wait until compaction has ended.
    settle: Callable[[], None]


def carry_out(load: FillLoad, calls: Binding, task: ArmTask, watch: Stopwatch) -> int:
    """Carry out a load and count all but the amplifications; return the bytes of the records that were put."""
    count, draws = task.scale_count(RECORDS), random.Random(f"fills {task.seed}")
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(count)]
    filled = keys if load.benchmark == IN_ORDER else draws.choices(keys, k=count)
    read = draws.choices(keys, k=count) if load.benchmark == READING else []
    records = zip(filled, cycle(_values(draws)), strict=False)
    with watch.running():
        taken_ns = (
            _put(records, calls) if load.batch_records == 1 else _write_batches(records, load.batch_records, calls)
        )
        calls.settle()
        if read:
            taken_ns, found_count = _got(read, calls)
            watch.count("reads that found a record", found_count)
    watch.count("mib_per_s", count * RECORD_BYTES / (1 << 20) / taken_ns * 1e9)
    watch.count("us_per_operation", taken_ns / 1e3 / count)
    watch.count("transactions", count)
    watch.count("rows", count)
    watch.count("user_bytes", count * RECORD_BYTES)
    return count * RECORD_BYTES


def count_amplifications(
    watch: Stopwatch, user_bytes: int, *, space_bytes: int, log_bytes: int, table_bytes: int
) -> None:
    """Count the space of tables, and the bytes written to log and tables, each divided by the records' bytes."""
    watch.count("space_amplification", space_bytes / user_bytes)
    watch.count("write_amplification", (log_bytes + table_bytes) / user_bytes)
    watch.count("write amplification without the log", table_bytes / user_bytes)


def missing(package: str) -> str:
    """Return why a binding cannot be used here; empty if it can."""
    if importlib.util.find_spec(package):
        return ""
    return f"it needs the Python package {package}, which is not installed beside the rig: pip install {package}"


def wait_until(is_settled: Callable[[], bool]) -> None:
    """Wait until a store has no more work in the background."""
    end_s = time.monotonic() + _SETTLED_LIMIT_S
    while not is_settled():
        if time.monotonic() > end_s:
            raise EngineError(f"tables are still written or compacted {_SETTLED_LIMIT_S} s after the last record")
        time.sleep(_PAUSE_S)


def _values(draws: random.Random) -> list[bytes]:
    """Return values whose second half repeats the first."""
    halves = (draws.randbytes(VALUE_BYTES // 2) for _ in range(_VALUES))
    return [half * 2 for half in halves]


def _put(records: Iterable[tuple[bytes, bytes]], calls: Binding) -> int:
    put, begin_ns = calls.put, time.perf_counter_ns()
    for key, value in records:
        put(key, value)
    return time.perf_counter_ns() - begin_ns


def _write_batches(records: Iterator[tuple[bytes, bytes]], batch_records: int, calls: Binding) -> int:
    begin_ns = time.perf_counter_ns()
    while part := list(islice(records, batch_records)):
        with calls.write_batch() as batch:
            put = batch.put
            for key, value in part:
                put(key, value)
    return time.perf_counter_ns() - begin_ns


def _got(keys: Iterable[bytes], calls: Binding) -> tuple[int, int]:
    """Return how long the reads took, and how many found a record."""
    get, found_count, begin_ns = calls.get, 0, time.perf_counter_ns()
    for key in keys:
        if get(key) is not None:
            found_count += 1
    return time.perf_counter_ns() - begin_ns, found_count
