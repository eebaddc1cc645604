"""S2: a feed reader's updates, by page size and sync mode, with its two pragmas in both orders.

Source: 002_ae85c010a67609cc.txt, lines 10 to 17. The row `none` has the default journal mode, DELETE. The document has
no run without a journal; the arm `off-1k-full` is such a run. The document does not say what an update of all feeds
does. Here each feed is fetched and three rows change, each in a transaction of its own: a new item, an older item
marked, the feed itself. The document sets journal_mode=wal first and the page size after it, which then has no effect;
the arms `wal-first` do the same, and the page sizes read back show it. Line 16, one arm on another file system, takes a
measurement on each (`rig.analysis.documents.across`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from rig.analysis.documents.replications.connection import connect, read_back
from rig.speed.trials.replication import ArmTask, Figure, Metric, Replication
from rig.speed.trials.stopwatch import Stopwatch

_FEEDS, _ITEMS_OF_FEED = 100, 20
_TEXT = "An item of a feed, as long as a short summary usually is. " * 8
_SCHEMA = (
    "CREATE TABLE feed (id INTEGER PRIMARY KEY, title TEXT NOT NULL, fetched INTEGER NOT NULL)",
    "CREATE TABLE item (id INTEGER PRIMARY KEY, feed INTEGER, is_read INTEGER, summary TEXT NOT NULL)",
    "CREATE INDEX item_feed ON item(feed)",
)
_BASE = "delete-1k-full"


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Make a database of feeds, open it again, and update every feed once."""
    feeds = task.scale_count(_FEEDS)
    connection = connect(task.directory, _pragmas(task.arm))
    _fill(connection, feeds)
    connection.close()
    connection = connect(task.directory, _pragmas(task.arm))
    watch.reads_back(read_back(connection))
    statements = [statement for feed in range(feeds) for statement in _update(feed, feeds)]
    taken_ns = []
    with watch.running():
        for statement, values in statements:
            begin_ns = time.perf_counter_ns()
            connection.execute(statement, values)
            taken_ns.append(time.perf_counter_ns() - begin_ns)
    connection.close()
    for each in taken_ns:
        watch.lap(each)
    watch.count("seconds", sum(taken_ns) / 1e9)
    watch.count("transactions", len(statements))
    watch.count("rows", len(statements))
    watch.count(
        "user_bytes", sum(8 if isinstance(value, int) else len(value) for _, values in statements for value in values)
    )


def _pragmas(arm: str) -> list[str]:
    """Return the pragmas of an arm such as `wal-first-32k-full`, in its order."""
    *modes, size, level = arm.split("-")
    pragmas = [f"page_size={int(size.removesuffix('k')) * 1024}", f"journal_mode={modes[0]}"]
    return [*(reversed(pragmas) if modes[1:] == ["first"] else pragmas), f"synchronous={level}"]


def _fill(connection: sqlite3.Connection, feeds: int) -> None:
    connection.execute("BEGIN")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.executemany("INSERT INTO feed VALUES (?, ?, 0)", ((number, f"feed {number}") for number in range(feeds)))
    rows = ((number, number % feeds, 0, f"{number} {_TEXT}") for number in range(feeds * _ITEMS_OF_FEED))
    connection.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", rows)
    connection.execute("COMMIT")


def _update(feed: int, feeds: int) -> Sequence[tuple[str, tuple[int | str, ...]]]:
    return (
        ("INSERT INTO item (feed, is_read, summary) VALUES (?, 0, ?)", (feed, f"new {_TEXT}")),
        ("UPDATE item SET is_read = 1 WHERE id = ?", (feed + feeds * (feed % _ITEMS_OF_FEED),)),
        ("UPDATE feed SET fetched = fetched + 1 WHERE id = ?", (feed,)),
    )


# Row of the document -> its seconds and line.
_SECONDS = {
    "wal-1k-full": (6.3, 11), "wal-4k-full": (6.2, 12), "wal-8k-full": (5.9, 13), "wal-16k-full": (5.8, 14),
    "wal-32k-full": (6.7, 15), "wal-32k-normal": (0.9, 17),
}  # fmt: skip
# The same rows with the pragmas in the document's order.
_FIRST = {f"wal-first-{arm.removeprefix('wal-')}": _SECONDS[arm] for arm in ("wal-32k-full", "wal-32k-normal")}
_BASE_SECONDS = 59.0

REPLICATION = Replication(
    name="S2",
    engine="sqlite",
    file="002_ae85c010a67609cc.txt",
    about="a feed reader's updates by page size and sync mode",
    arms=(_BASE, "off-1k-full", *_SECONDS, *_FIRST),
    metrics=(Metric("seconds", "s", more_is_better=False),),
    figures=tuple(
        Figure(arm, _BASE, "seconds", seconds / _BASE_SECONDS, line, seconds, _BASE_SECONDS)
        for arm, (seconds, line) in (_SECONDS | _FIRST).items()
    ),
    carry_out=carry_out,
)
