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

from rig.engines import fills
from rig.engines.replications import ArmTask, Replication, Stopwatch
from rig.engines.rocksdb.replications import s4

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
    options.set_write_buffer_size(task.scaled(fills.BUFFER_BYTES))
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


def hindrance(_arm: str, _directory: str) -> str:
    """Return why the binding cannot be used here; empty if it can."""
    return fills.missing(_PACKAGE)


# Arms that the document does not measure.
_FURTHER = (f"{fills.AT_RANDOM}-{{log}}-{fills.BATCH}", f"{fills.READING}-{{log}}")

REPLICATION = Replication(
    name=s4.NAME,
    file=s4.FILE,
    about="the same records through the binding for Python, with and without the WAL",
    arms=s4.arms(_FURTHER, _PREFIX),
    metrics=fills.METRICS,
    figures=s4.figures(_PREFIX),
    carry_out=carry_out,
    bases=s4.bases(_FURTHER, _PREFIX),
    hindrance=hindrance,
    needed_bytes=s4.NEEDED_BYTES,
)
