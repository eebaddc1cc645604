"""S0: a blog's script with 12 writers and 40 readers in threads, rollback journal against WAL.

Source: 000_b23a4b58a0669b1a.txt, the script from line 137 on, its table in lines 269 to 272. The `verbatim` arms do
what the script does, and count what the script does not notice:

- an exception in a thread is dropped, and the rows that the thread did not write count as written;
- readers ask for ids up to 10000 while the table grows from nothing: asking for a row that is missing counts as a read;
- both columns are nominal counts divided by the same time, so their ratios are equal by construction;
- a writer commits once, after all its rows, so there are twelve commits in all and hardly any sync is measured.

The `honest` arms keep the twelve writers and forty readers. Every row is a transaction. The table has rows from the
start, and readers ask only for committed rows. Both roles run for the same fixed time, each with a clock of its own.
Only acknowledged or found rows count; a writer that finds the database busy counts that and tries again. Writers and
readers are threads of one Python process, as in the script, so Python's global lock is part of the measurement:
readers, which never wait for a disk, take it from the writers.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rig.analysis.documents.replications.connection import FILE, connect, read_back
from rig.speed.trials.replication import ArmTask, Figure, Metric, Replication
from rig.speed.trials.stopwatch import Stopwatch

_WRITERS, _READERS = 12, 40
_ROWS_OF_WRITER, _READS_OF_READER = 2000, 1000
_ID_MAX = 10_000
_TABLE = "CREATE TABLE test_table (id INTEGER PRIMARY KEY, value TEXT)"
_INSERT = "INSERT INTO test_table (value) VALUES (?)"
_SELECT = "SELECT * FROM test_table WHERE id = ?"
_HONEST_S = 2.0
# Short enough for a thread to notice that its time is over.
_BUSY_S = 0.05
_OPENING_S = 30.0


class _Role:
    """What the threads of one role did together."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.latencies_ns: list[int] = []
        self.ended_s = 0.0
        self._lock = threading.Lock()

    def add(self, counts: Counter[str], latencies_ns: list[int]) -> None:
        """Add what one thread did, and note when."""
        with self._lock:
            self.counts += counts
            self.latencies_ns += latencies_ns
            self.ended_s = max(self.ended_s, time.perf_counter())


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Carry out one arm."""
    kind, _, settings = task.arm.partition("-")
    if kind == "verbatim":
        _verbatim(task, watch, is_wal=settings == "wal")
    else:
        journal_mode, _, synchronous = settings.partition("_")
        _honest(task, watch, journal_mode, synchronous)


def _verbatim(task: ArmTask, watch: Stopwatch, *, is_wal: bool) -> None:
    connection = connect(task.directory, ["journal_mode=wal"] if is_wal else [])
    connection.execute(_TABLE)
    watch.reads_back(read_back(connection))
    connection.close()
    rows, reads = task.scale_count(_ROWS_OF_WRITER), task.scale_count(_READS_OF_READER)
    writers, readers = _Role(), _Role()
    with watch.running():
        begin_s = time.perf_counter()
        with ThreadPoolExecutor(_WRITERS + _READERS) as pool:
            running = [pool.submit(_write_all, task.directory, rows, writers) for _ in range(_WRITERS)]
            for number in range(_READERS):
                choice = random.Random(f"{task.seed} {number}")
                running.append(pool.submit(_read_all, task.directory, reads, choice, readers))
        taken_s = time.perf_counter() - begin_s
    for thread in running:
        thread.result()
    # The script's calculation: nominal counts divided by one common time.
    watch.count("writes_per_s", _WRITERS * rows / taken_s)
    watch.count("reads_per_s", _READERS * reads / taken_s)
    watch.count("transactions", writers.counts["commits"])
    watch.count("rows", writers.counts["rows"])
    watch.count("user_bytes", sum(8 + len(f"Value {number}") for number in range(rows)) * writers.counts["commits"])
    watch.count("writers whose error was dropped", writers.counts["errors"])
    watch.count("readers whose error was dropped", readers.counts["errors"])
    watch.count("reads that found no row", readers.counts["absent"])
    watch.count("rows claimed and not in the table", _WRITERS * rows - _row_count(task.directory))
    for taken_ns in writers.latencies_ns:
        watch.lap(taken_ns)


def _write_all(directory: str, count: int, role: _Role) -> None:
    """Insert all rows of one writer in one transaction; count errors, which the script drops."""
    counts, latencies_ns = Counter[str](), list[int]()
    try:
        connection = sqlite3.connect(f"{directory}/{FILE}")
        begin_ns = time.perf_counter_ns()
        for number in range(count):
            connection.execute(_INSERT, (f"Value {number}",))
        connection.commit()
        latencies_ns.append(time.perf_counter_ns() - begin_ns)
        connection.close()
        counts.update(commits=1, rows=count)
    except sqlite3.Error:
        counts["errors"] += 1
    role.add(counts, latencies_ns)


def _read_all(directory: str, count: int, choice: random.Random, role: _Role) -> None:
    counts = Counter[str]()
    try:
        connection = sqlite3.connect(f"{directory}/{FILE}")
        for _ in range(count):
            row = connection.execute(_SELECT, (choice.randint(1, _ID_MAX),)).fetchone()
            counts["absent" if row is None else "found"] += 1
        connection.close()
    except sqlite3.Error:
        counts["errors"] += 1
    role.add(counts, [])


def _honest(task: ArmTask, watch: Stopwatch, journal_mode: str, synchronous: str) -> None:
    pragmas = [f"journal_mode={journal_mode}", f"synchronous={synchronous}"]
    connection = connect(task.directory, pragmas)
    connection.execute("BEGIN")
    connection.execute(_TABLE)
    connection.executemany(_INSERT, ((f"Value {number}",) for number in range(_ID_MAX)))
    connection.execute("COMMIT")
    watch.reads_back(read_back(connection))
    connection.close()
    committed = _Committed(_ID_MAX)
    writers, readers = _Role(), _Role()
    with watch.running():
        begin_s = time.perf_counter()
        end_s = begin_s + _HONEST_S * task.scale

        def write() -> None:
            _write_until(_patient(task.directory, pragmas[1:]), end_s, committed, writers)

        def read(number: int) -> None:
            choice = random.Random(f"{task.seed} {number}")
            _read_until(_patient(task.directory), end_s, committed, choice, readers)

        with ThreadPoolExecutor(_WRITERS + _READERS) as pool:
            running = [pool.submit(write) for _ in range(_WRITERS)]
            running += [pool.submit(read, number) for number in range(_READERS)]
        for thread in running:
            thread.result()
    watch.count("writes_per_s", writers.counts["commits"] / (writers.ended_s - begin_s))
    watch.count("reads_per_s", readers.counts["found"] / (readers.ended_s - begin_s))
    watch.count("transactions", writers.counts["commits"])
    watch.count("rows", writers.counts["commits"])
    watch.count("user_bytes", 16 * writers.counts["commits"])
    watch.count("busy writers, tried again", writers.counts["busy"])
    watch.count("busy readers, tried again", readers.counts["busy"])
    watch.count("reads that found no row", readers.counts["absent"])
    watch.count("rows acknowledged and not in the table", committed.count - _row_count(task.directory))
    for taken_ns in writers.latencies_ns:
        watch.lap(taken_ns)


class _Committed:
    """The rows whose commit has been acknowledged: their number, and the largest id, below which all exist."""

    def __init__(self, count: int) -> None:
        self.count = self.id_max = count
        self._lock = threading.Lock()

    def add(self, row_id: int) -> None:
        """Note an acknowledged row. SQLite lets writers in one at a time, so all smaller ids are committed too."""
        with self._lock:
            self.count += 1
            self.id_max = max(self.id_max, row_id)


def _write_until(connection: sqlite3.Connection, end_s: float, committed: _Committed, role: _Role) -> None:
    counts, latencies_ns = Counter[str](), list[int]()
    while time.perf_counter() < end_s:
        begin_ns = time.perf_counter_ns()
        while True:
            try:
                row_id = connection.execute(_INSERT, ("8 bytes!",)).lastrowid
            except sqlite3.OperationalError as error:
                _require_busy(error)
                counts["busy"] += 1
                if time.perf_counter() >= end_s:
                    break
            else:
                assert row_id
                committed.add(row_id)
                counts["commits"] += 1
                latencies_ns.append(time.perf_counter_ns() - begin_ns)
                break
    role.add(counts, latencies_ns)
    connection.close()


def _read_until(
    connection: sqlite3.Connection, end_s: float, committed: _Committed, choice: random.Random, role: _Role
) -> None:
    counts = Counter[str]()
    while time.perf_counter() < end_s:
        try:
            row = connection.execute(_SELECT, (choice.randint(1, committed.id_max),)).fetchone()
        except sqlite3.OperationalError as error:
            _require_busy(error)
            counts["busy"] += 1
        else:
            counts["absent" if row is None else "found"] += 1
    role.add(counts, [])
    connection.close()


def _patient(directory: str, pragmas: Sequence[str] = ()) -> sqlite3.Connection:
    """Open the database while many others do so, then make every later wait for a lock short."""
    connection = connect(directory, pragmas, timeout_s=_OPENING_S)
    connection.execute(f"PRAGMA busy_timeout={int(_BUSY_S * 1e3)}").fetchall()
    return connection


def _require_busy(error: sqlite3.OperationalError) -> None:
    # SQLITE_BUSY and its extended codes (rescode.html).
    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
        raise error


def _row_count(directory: str) -> int:
    connection = connect(directory)
    (count,) = connection.execute("SELECT count(*) FROM test_table").fetchone()
    connection.close()
    return int(count)


_HONEST = ("honest-delete_full", "honest-wal_full", "honest-wal_normal")
_WRITES, _READS = (8408, 9768), (14014, 16281)


def _figures() -> tuple[Figure, ...]:
    pairs = (("verbatim-wal", "verbatim-normal"), ("honest-wal_full", "honest-delete_full"))
    columns = (("writes_per_s", _WRITES), ("reads_per_s", _READS))
    return tuple(
        Figure(arm, base, metric, wal / normal, 272, wal, normal, "WAL / normal")
        for arm, base in pairs
        for metric, (normal, wal) in columns
    )


REPLICATION = Replication(
    name="S0",
    engine="sqlite",
    file="000_b23a4b58a0669b1a.txt",
    about="12 writers and 40 readers in threads, rollback journal and WAL",
    arms=("verbatim-normal", "verbatim-wal", *_HONEST),
    metrics=(
        Metric("writes_per_s", "writes/s", more_is_better=True),
        Metric("reads_per_s", "reads/s", more_is_better=True),
    ),
    figures=_figures(),
    carry_out=carry_out,
    bases=dict.fromkeys(_HONEST, _HONEST[0]),
)
