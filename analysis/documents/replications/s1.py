"""S1: how long a single-row insert takes, by the size of the table, in the normal mode and in WAL at three levels.

Source: 001_25af1f99a4f1efd2.txt, lines 9 and 21 to 25: the median of a single insert is a little above 100 ms in the
normal mode whatever the size of the table, 60 % less in WAL with FULL, 99 % less in WAL with OFF. For NORMAL the text
has no figure; its chart is not in the text. Disk, rows and version are not given, so only ratios are compared. Every
insert is a transaction over one connection, by the driver of the scenarios, with SQLite's own checkpoint interval.
"""

from __future__ import annotations

import hashlib
import statistics
import time

from rig.engines.sqlite.driver import open_database
from rig.speed.trials.replication import ArmTask, Figure, Metric, Replication
from rig.speed.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation, Table, Verb

_SETTINGS = ("delete_full", "wal_full", "wal_normal", "wal_off")
_SIZES = (1_000, 10_000, 100_000)
_INSERTS = 100
_TABLE = Table("sample", (("source", int), ("value", str)), index="source")
_VALUE_CHARS = 80


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Fill the table, and insert single rows."""
    settings, size = _parts_of(task.arm)
    journal_mode, _, synchronous = settings.partition("_")
    database = open_database(task.directory, {"journal_mode": journal_mode, "synchronous": synchronous})
    filled = task.scale_count(size)
    database.create((_TABLE,), [_row(task.seed, key) for key in range(1, filled + 1)])
    watch.reads_back(database.settings())
    rows = [_row(task.seed, key) for key in range(filled + 1, filled + 1 + task.scale_count(_INSERTS))]
    taken_ns = []
    with watch.running():
        for row in rows:
            begin_ns = time.perf_counter_ns()
            database.commit((row,))
            taken_ns.append(time.perf_counter_ns() - begin_ns)
    database.close()
    for each in taken_ns:
        watch.lap(each)
    watch.count("insert_ms", statistics.median(taken_ns) / 1e6)
    watch.count("transactions", len(rows))
    watch.count("rows", len(rows))
    watch.count("user_bytes", sum(row.user_bytes for row in rows))


def _parts_of(arm: str) -> tuple[str, int]:
    settings, _, words = arm.partition(", ")
    return settings, int(words.split()[0])


def _row(seed: int, key: int) -> Operation:
    text = hashlib.shake_128(f"sample {seed} {key}".encode()).hexdigest(_VALUE_CHARS // 2)
    return Operation(Verb.INSERT, _TABLE.name, key, (key % 97, text))


def _arm(settings: str, size: int) -> str:
    return f"{settings}, {size} rows"


def _figures() -> tuple[Figure, ...]:
    of_modes = [
        Figure(_arm(settings, size), _arm(_SETTINGS[0], size), "insert_ms", ratio, 25, what=what)
        for size in _SIZES
        for settings, ratio, what in (("wal_full", 0.4, "60 % less"), ("wal_off", 0.01, "99 % less"))
    ]
    of_sizes = [
        Figure(_arm(_SETTINGS[0], size), _arm(_SETTINGS[0], _SIZES[0]), "insert_ms", 1.0, 25, what="whatever the size")
        for size in _SIZES[1:]
    ]
    return (*of_modes, *of_sizes)


REPLICATION = Replication(
    name="S1",
    engine="sqlite",
    file="001_25af1f99a4f1efd2.txt",
    about="single-row inserts by the size of the table",
    arms=tuple(_arm(settings, size) for size in _SIZES for settings in _SETTINGS),
    metrics=(Metric("insert_ms", "ms/insert", more_is_better=False),),
    figures=_figures(),
    carry_out=carry_out,
    bases={_arm(settings, size): _arm(_SETTINGS[0], size) for size in _SIZES for settings in _SETTINGS},
    absent={
        "MariaDB (line 25)": (
            "it is another engine, which `rig speed --fs WORD --rows 1 --filled 1000 sqlite-wal_off mariadb-default` "
            "measures beside this one; the document gives neither its settings nor a figure"
        ),
        "the figure of WAL with NORMAL": "it is only in a chart that the text does not have; ours is in the table",
    },
)
