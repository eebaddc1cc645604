"""S4 through `rocksdict`, the binding of the driver: the load of db_bench, called from Python.

So each figure includes Python. The cost of the log shows by comparing an arm with the WAL and the same arm without it.
No arm has several threads, because the binding carries out one write at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rig.analysis.documents.replications import fills, s4
from rig.speed.trials.replication import ArmTask
from rig.speed.trials.stopwatch import Stopwatch

_PREFIX = "binding-"
_PACKAGE = "rocksdict"
# What RocksDB still has to do in the background; 0 if nothing.
_WORK = tuple(
    f"rocksdb.{name}"
    for name in ("mem-table-flush-pending", "num-running-flushes", "compaction-pending", "num-running-compactions")
)


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Fill a database, wait until it compacts no more, and perhaps read it."""
    import rocksdict

    _, benchmark, log, *shape = task.arm.split("-")
    path = Path(task.directory, "db")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_write_buffer_size(task.scale_count(fills.BUFFER_BYTES))
    options.enable_statistics()
    writes = rocksdict.WriteOptions()
    writes.disable_wal = log == "nowal"
    database = rocksdict.Rdict(str(path), options)
    database.set_write_options(writes)

    @contextmanager
    def write_batch() -> Iterator[Any]:
        batch = rocksdict.WriteBatch(raw_mode=True)
        yield batch
        database.write(batch, writes)

    calls = fills.Binding(database.put, database.get, write_batch, partial(_settle, database))
    user_bytes = fills.carry_out(fills.FillLoad.of(benchmark, shape), calls, task, watch)
    s4.tell(path, options.get_statistics(), user_bytes, watch, binding=version(_PACKAGE))
    database.close()


def _settle(database: Any) -> None:
    """Write out the content of memory, and wait until compaction has ended."""
    database.flush(wait=True)
    fills.wait_until(lambda: not any(database.property_int_value(name) for name in _WORK))


# Arms that the document does not measure.
_FURTHER = (f"{fills.AT_RANDOM}-{{log}}-{fills.BATCH}", f"{fills.READING}-{{log}}")

REPLICATION = s4.replication(
    "the same records through the binding for Python, with and without the WAL",
    carry_out,
    partial(fills.missing, _PACKAGE),
    _FURTHER,
    _PREFIX,
)
