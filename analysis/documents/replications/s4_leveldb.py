"""The load of the document on the cost of a log (S4) through `plyvel`. LevelDB cannot do without a log.

So the document has no figures for LevelDB. The log is not synced, by db_bench's default. The write buffer has 64 MiB as
in the other arms, not LevelDB's 4 MiB. `rig.engines.leveldb.accounts` says where the bytes of the amplifications come
from; the bytes of the log include the headers of its records, 7 bytes a batch. Reads make LevelDB compact, too, so the
arm that reads has written more than the arm that only fills.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rig.analysis.documents.replications import fills
from rig.engines.leveldb import accounts
from rig.speed.trials.replication import ArmTask, Replication
from rig.speed.trials.stopwatch import Stopwatch

_PACKAGE = "plyvel"
_FIRST, _FILLING, _READING = (f"leveldb-{load}" for load in (fills.IN_ORDER, fills.AT_RANDOM, fills.READING))
# LevelDB raises smaller sizes to this.
_BUFFER_BYTES_MIN = 64 << 10
# No key is in this range.
_NOWHERE = {"start": b"\xff", "stop": b"\xff\xff"}


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Fill a database, wait until it compacts no more, and perhaps read it."""
    import plyvel

    _, benchmark, *shape = task.arm.split("-")
    load, path = fills.FillLoad.of(benchmark, shape), Path(task.directory, "db")
    buffer_bytes = max(task.scale_count(fills.BUFFER_BYTES), _BUFFER_BYTES_MIN)
    database = plyvel.DB(str(path), create_if_missing=True, write_buffer_size=buffer_bytes)
    calls = fills.Binding(database.put, database.get, database.write_batch, partial(_settle, database))
    user_bytes = fills.carry_out(load, calls, task, watch)
    # The tables in use at this moment: reads may have started a compaction that still runs.
    space_bytes = sum(map(sum, accounts.levels(_tables(database)).values()))
    info_log = (path / "LOG").read_text()
    tables = accounts.flushed_bytes(info_log) + accounts.compacted_bytes(info_log)
    logged = accounts.log_bytes(fills.RECORD_BYTES, load.batch_records, task.scale_count(fills.RECORDS))
    # LevelDB does not show its options, so this is the buffer size as given.
    versions = {"version": plyvel.__leveldb_version__, "binding": plyvel.__version__}
    watch.reads_back({**versions, "write_buffer_size": str(buffer_bytes)})
    fills.count_amplifications(watch, user_bytes, space_bytes=space_bytes, log_bytes=logged, table_bytes=tables)
    database.close()


def _settle(database: Any) -> None:
    """Write out the content of memory, and wait until compaction has ended.

    A compaction of a range first writes out the content of memory, and waits for the running compaction.
    """

    def is_settled() -> bool:
        database.compact_range(**_NOWHERE)
        return accounts.is_settled(accounts.levels(_tables(database)))

    fills.wait_until(is_settled)


def _tables(database: Any) -> str:
    tables: bytes = database.get_property(accounts.SSTABLES)
    return tables.decode()


REPLICATION = Replication(
    name="S4",
    engine="leveldb",
    file="004_b69e233fac2395fd.txt",
    about="the same records in an engine that always writes a log",
    arms=(_FIRST, _FILLING, f"{_FILLING}-{fills.BATCH}", _READING),
    metrics=fills.METRICS,
    figures=(),
    carry_out=carry_out,
    bases={f"{_FILLING}-{fills.BATCH}": _FILLING, _READING: _READING},
    obstacle=lambda _arm, _directory: fills.missing(_PACKAGE),
    needed_bytes=1 << 30,
)
