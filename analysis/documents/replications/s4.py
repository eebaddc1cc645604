"""S4: the document's rows, and what RocksDB reports after each.

Source: 004_b69e233fac2395fd.txt, lines 12 to 44: throughput, latency, and space and write amplification of fillseq and
fillrandom, as means of ten runs of a million records. The document does not say how it got the amplifications. Here
space amplification is the bytes of all table files, after a flush and the end of all compaction, divided by the bytes
of the records. Write amplification is the bytes that were written to tables and to the log, by RocksDB's statistics,
divided by the same. A further count leaves out the log, as does the table that db_bench itself prints. Flush and
compaction are in the measured time, but not in throughput and latency. At a smaller scale memtables shrink by the same
factor, so that they fill as often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rig.analysis.documents.replications import dbbench, fills
from rig.engines.rocksdb import options
from rig.speed.trials.replication import ArmTask, Figure, Replication
from rig.speed.trials.stopwatch import Stopwatch

# Arm -> the document's line and figures, in the order of the metrics. Its throughput is in MB/s.
_ROWS = {
    "fillseq-nowal": (41, (180.22, 0.61416, 2.667, 2.0)),
    "fillrandom-nowal": (42, (77.33, 1.43117, 1.625, 1.7)),
    "fillseq-wal": (43, (51.73, 2.13972, 2.06667, 2.0)),
    "fillrandom-wal": (44, (36.17, 3.06011, 1.625, 1.7)),
}
_BASES = {"fillrandom-nowal": "fillseq-nowal", "fillseq-wal": "fillseq-nowal", "fillrandom-wal": "fillrandom-nowal"}


def replication(
    about: str,
    carry_out: Callable[[ArmTask, Stopwatch], None],
    obstacle: Callable[[], str],
    further: Sequence[str],
    prefix: str = "",
) -> Replication:
    """Return the rows as one program carries them out; a further arm without a log is the base of the same with one."""
    pairs = {arm.format(log=log): arm.format(log="nowal") for arm in further for log in ("nowal", "wal")}
    return Replication(
        name="S4",
        engine="rocksdb",
        file="004_b69e233fac2395fd.txt",
        about=about,
        arms=tuple(prefix + arm for arm in (*_ROWS, *pairs)),
        metrics=fills.METRICS,
        figures=tuple(
            Figure(prefix + arm, prefix + base, metric.name, value / of, _ROWS[arm][0], value, of)
            for arm, base in _BASES.items()
            for metric, value, of in zip(fills.METRICS, _ROWS[arm][1], _ROWS[base][1], strict=True)
        ),
        carry_out=carry_out,
        bases={prefix + arm: prefix + base for arm, base in (_BASES | pairs).items()},
        obstacle=lambda _arm, _directory: obstacle(),
        needed_bytes=1 << 30,
    )


def tell(path: Path, statistics: str, user_bytes: int, watch: Stopwatch, **versions: str) -> None:
    """Note further versions and the settings that RocksDB itself wrote down, and count the amplifications."""
    logged = dbbench.statistic(statistics, dbbench.LOG_BYTES)
    tables = sum(dbbench.statistic(statistics, name) for name in (dbbench.FLUSHED_BYTES, dbbench.COMPACTED_BYTES))
    has = options.parse(max(path.glob("OPTIONS-*")).read_text())
    names = ("rocksdb_version", "write_buffer_size", "compression")
    wal = "written" if logged else "not written"
    watch.reads_back({"wal": wal, **{name: has[name] for name in names}, **versions})
    space_bytes = sum(table.stat().st_size for table in path.glob("*.sst"))
    fills.count_amplifications(watch, user_bytes, space_bytes=space_bytes, log_bytes=logged, table_bytes=tables)
