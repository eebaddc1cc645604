"""One trial of the WAL-reset race: two processes on one database, without any crash. Run it with APSW on the path.

    python wal_reset.py trial DATABASE SECONDS

SQLite describes it (sqlite.org/wal.html, The WAL-Reset Bug): a checkpoint reads the header of the WAL index. Before it
reads how much of the WAL has been copied, another connection resets the WAL, which had been copied completely, and
commits at its start. The checkpoint then marks frames as copied that are not the ones it knew. They never reach the
database, and no reader looks for them in the WAL.

Four things make it likely here. `wal_autocheckpoint=1` leaves the WAL completely copied after each transaction of the
writer, so that the next one resets it. Transactions have different lengths, so that the stale length is longer than the
new WAL. The checkpointer has a memory map of a large database that it has read, and unmaps it just between the two
reads, which takes milliseconds in which the writer commits. And it pauses between reading and checkpointing; without
that, the reader's own mark would keep the WAL from being copied completely.

The writer counts its commits and checks the database from time to time; at the end everything is closed and checked
once more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import apsw

_BALLAST_PAGES = 16384
_ROW_BYTES = 3000
_PAUSE_S = 0.002
_BUSY_LIMIT_MS = 60_000
_LONG, _SHORT, _PERIOD = 20, 1, 4
_LOOK_EVERY = 50
_END_LIMIT_S = 120


def connect(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(_BUSY_LIMIT_MS)
    # Nothing crashes, so nothing needs to be synced.
    connection.execute("PRAGMA synchronous=off")
    return connection


def prepare(path: str) -> None:
    connection = connect(path)
    connection.execute("PRAGMA journal_mode=off")
    connection.execute("CREATE TABLE ballast(id INTEGER PRIMARY KEY, b BLOB)")
    connection.execute("CREATE TABLE work(id INTEGER PRIMARY KEY, b BLOB)")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) "
        "INSERT INTO ballast SELECT i, zeroblob(?) FROM n",
        (_BALLAST_PAGES, _ROW_BYTES),
    )
    connection.execute("PRAGMA journal_mode=wal")
    connection.close()


def rows(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM work").fetchall()[0][0])


def write(path: str, seconds: float) -> dict[str, Any]:
    """Commit until the time is over or an error is found; return what was committed, and the error."""
    connection = connect(path)
    connection.execute("PRAGMA wal_autocheckpoint=1")
    until = time.monotonic() + seconds
    committed = transactions = 0
    wrong = ""
    try:
        while time.monotonic() < until and not wrong:
            count = _LONG if transactions % _PERIOD == 0 else _SHORT
            connection.execute("BEGIN IMMEDIATE")
            for number in range(committed + 1, committed + count + 1):
                connection.execute("INSERT INTO work VALUES (?, zeroblob(?))", (number, _ROW_BYTES))
            connection.execute("COMMIT")
            committed, transactions = committed + count, transactions + 1
            if transactions % _LOOK_EVERY == 0 and (found := rows(connection)) != committed:
                wrong = f"{committed} rows were committed, {found} are there"
    except apsw.CorruptError as error:
        wrong = f"after {committed} rows: {error}"
    return {"committed": committed, "transactions": transactions, "wrong": wrong}


def trial(path: str, seconds: float) -> dict[str, Any]:
    """Checkpoint while another process writes; return the number of checkpoints, what was committed, and the error."""
    prepare(path)
    connection = connect(path)
    connection.execute(f"PRAGMA mmap_size={1 << 31}")
    writer = subprocess.Popen([sys.executable, __file__, "write", path, str(seconds)], stdout=subprocess.PIPE)
    checkpoints = 0
    wrong = ""
    try:
        while writer.poll() is None and not wrong:
            connection.execute("SELECT count(*) FROM ballast").fetchall()
            time.sleep(_PAUSE_S)
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            checkpoints += 1
    except apsw.CorruptError as error:
        wrong = f"the checkpointer: {error}"
    told, _ = writer.communicate(timeout=_END_LIMIT_S)
    if writer.returncode:
        raise RuntimeError(f"the writer ended with {writer.returncode}")
    facts: dict[str, Any] = json.loads(told)
    connection.close()
    return facts | {
        "version": apsw.sqlite_lib_version(),
        "checkpoints": checkpoints,
        "wrong": "; ".join(filter(None, [facts["wrong"], wrong, _wrong_at_the_end(path, facts["committed"])])),
    }


def _wrong_at_the_end(path: str, committed: int) -> str:
    connection = connect(path)
    try:
        found = rows(connection)
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
    except apsw.CorruptError as error:
        return f"at the end: {error}"
    if found != committed or problems:
        return f"at the end: {committed} rows were committed, {found} are there; {'; '.join(problems)}"
    return ""


if __name__ == "__main__":
    role, database, limit = sys.argv[1:]
    json.dump((trial if role == "trial" else write)(database, float(limit)), sys.stdout)
