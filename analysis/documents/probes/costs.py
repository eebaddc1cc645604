"""Probes of what a transaction costs in syncs, locks and bytes: counted, so that the disk's speed does not matter."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rig.analysis.documents.probes.calls import Calls, Taken, counting
from rig.analysis.documents.probes.databases import Pragmas, connect_counting, fill, insert, pragma, shm_of, size_bytes
from rig.analysis.documents.probes.probe import Figures

_TRANSACTIONS = 20


def syncs_and_locks(folder: Path) -> Figures:
    """Count syncs, lock calls and bytes of a transaction with DELETE and WAL at FULL, without any reader."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for mode in ("delete", "wal"):
            with closing(connect_counting(folder / f"{mode}.db", journal_mode=mode)) as connection:
                fill(connection, 500)
                taken = _calls_of_updates(calls, connection, _TRANSACTIONS)
                figures[f"syncs_{mode}"] = taken.count("sync") / _TRANSACTIONS
                figures[f"locks_{mode}"] = taken.count("lock") / _TRANSACTIONS
                figures[f"kb_{mode}"] = taken.bytes_written() / _TRANSACTIONS / 1000
    return figures


def syncs_of_log(folder: Path) -> Figures:
    """Count the syncs of a commit and of a checkpoint in WAL at each level."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for level in ("off", "normal", "full"):
            pragmas: Pragmas = {"journal_mode": "wal", "synchronous": level}
            with closing(connect_counting(folder / f"{level}.db", **pragmas)) as connection:
                fill(connection, 500)
                figures[f"commit_{level}"] = (
                    _calls_of_updates(calls, connection, _TRANSACTIONS).count("sync") / _TRANSACTIONS
                )
                pragma(connection, "wal_checkpoint")
                figures[f"checkpoint_{level}"] = calls.take().count("sync")
    return figures


def unsynced_commits(folder: Path) -> Figures:
    """Count how many commits in a row no sync of the WAL follows, by checkpoint threshold and level."""
    figures: dict[str, int] = {}
    with counting() as calls:
        for level in ("normal", "full"):
            for threshold in (1, 10, 100):
                path = folder / f"{level}-{threshold}.db"
                pragmas: Pragmas = {"journal_mode": "wal", "synchronous": level, "wal_autocheckpoint": threshold}
                with closing(connect_counting(path, **pragmas)) as connection:
                    fill(connection, 500)
                    figures[f"{level}_{threshold}"] = _longest_unsynced(calls, connection)
    return {**figures, "full_most": max(figures[f"full_{threshold}"] for threshold in (1, 10, 100))}


def _longest_unsynced(calls: Calls, connection: sqlite3.Connection) -> int:
    longest = unsynced = 0
    for _ in range(300):
        unsynced = 0 if _calls_of_updates(calls, connection, 1).count("sync", "wal") else unsynced + 1
        longest = max(longest, unsynced)
    return longest


def checkpoints(folder: Path) -> Figures:
    """Count syncs and bytes of a transaction with DELETE, with a checkpoint after each commit, and at the default."""
    figures: dict[str, float] = {}
    count = 1500
    with counting() as calls:
        for name, mode, threshold in (("delete", "delete", 1000), ("each", "wal", 1), ("default", "wal", 1000)):
            pragmas: Pragmas = {"journal_mode": mode, "wal_autocheckpoint": threshold}
            with closing(connect_counting(folder / f"{name}.db", **pragmas)) as connection:
                fill(connection, 10_000)
                taken = _calls_of_updates(calls, connection, 20 if name != "default" else count, spread=10_000)
                own = 20 if name != "default" else count
                figures[f"syncs_{name}"] = taken.count("sync") / own
                figures[f"kb_{name}"] = taken.bytes_written() / own / 1000
    return figures


def bytes_written(folder: Path) -> Figures:
    """Count the bytes of a transaction, checkpoints included, for updates that spread out and that repeat a page."""
    figures: dict[str, float] = {}
    count = 2000
    with counting() as calls:
        for mode in ("delete", "wal"):
            for name, spread in (("spread", 40_000), ("repeated", 20)):
                pragmas: Pragmas = {"journal_mode": mode, "synchronous": "off"}
                with closing(connect_counting(folder / f"{mode}-{name}.db", **pragmas)) as connection:
                    fill(connection, 40_000)
                    if mode == "wal":
                        pragma(connection, "wal_checkpoint(TRUNCATE)")
                    calls.take()
                    _update(connection, count, spread)
                    if mode == "wal":
                        pragma(connection, "wal_checkpoint")
                    figures[f"kb_{mode}_{name}"] = calls.take().bytes_written() / count / 1000
    return {
        **figures, "ratio_spread": figures["kb_wal_spread"] / figures["kb_delete_spread"],
        "ratio_repeated": figures["kb_wal_repeated"] / figures["kb_delete_repeated"],
    }  # fmt: skip


def peak_space(folder: Path) -> Figures:
    """Find the largest size of all files together, for small transactions and for one that changes every page."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for mode in ("delete", "wal"):
            path = folder / f"{mode}.db"
            pragmas: Pragmas = {"journal_mode": mode, "synchronous": "off"}
            with closing(connect_counting(path, **pragmas)) as connection:
                fill(connection, 40_000)
                figures["database_mb"] = size_bytes(path) / 1e6
                calls.take()
                _update(connection, 2000, 40_000)
                figures[f"mb_{mode}_small"] = _largest(calls.take()) + size_bytes(shm_of(path)) / 1e6
                connection.execute("UPDATE rows SET payload = randomblob(100)")
                figures[f"mb_{mode}_large"] = _largest(calls.take()) + size_bytes(shm_of(path)) / 1e6
    return figures


def _largest(taken: Taken) -> float:
    """Return how far journal or WAL were written, in MB."""
    ends = [
        call.offset_bytes + call.size_bytes
        for call in taken.calls
        if call.file in {"journal", "wal"} and call.what == "write"
    ]
    return max(ends, default=0) / 1e6


def table_size(folder: Path) -> Figures:
    """Count syncs and bytes of an insert into a small and into a large table, in rollback mode and in WAL."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for mode in ("delete", "wal"):
            for name, rows in (("small", 1000), ("large", 500_000)):
                with closing(connect_counting(folder / f"{mode}-{name}.db", journal_mode=mode)) as connection:
                    pragma(connection, "synchronous", "off")
                    fill(connection, rows, 20)
                    pragma(connection, "synchronous", "full")
                    insert(connection, 3, 20)
                    calls.take()
                    insert(connection, 50, 20)
                    taken = calls.take()
                    figures[f"syncs_{mode}_{name}"] = taken.count("sync") / 50
                    figures[f"kb_{mode}_{name}"] = taken.bytes_written() / 50 / 1000
    return {
        **figures, "ratio_syncs": figures["syncs_delete_large"] / figures["syncs_delete_small"],
        "ratio_kb": figures["kb_delete_large"] / figures["kb_delete_small"],
    }  # fmt: skip


def journal_of_one_row(folder: Path) -> Figures:
    """Update one row of a large table in rollback mode, and all of them, and count what the journal gets."""
    path = folder / "large.db"
    with counting() as calls, closing(connect_counting(path, synchronous="off")) as connection:
        fill(connection, 200_000, 200)
        calls.take()
        connection.execute("UPDATE rows SET payload = randomblob(200) WHERE id = 100000")
        journal_bytes = calls.take().bytes_written("journal")
        connection.execute("UPDATE rows SET payload = randomblob(200)")
        every = calls.take().bytes_written("journal")
        total = size_bytes(path)
    return {
        "database_mb": total / 1e6,
        "kb_one": journal_bytes / 1000,
        "share_one": journal_bytes / total,
        "share_all": every / total,
    }


def write_before_commit(folder: Path) -> Figures:
    """Insert inside an open transaction in rollback mode and count the writes to the database; then commit."""
    path = folder / "open.db"
    with counting() as calls, closing(connect_counting(path)) as connection:
        fill(connection, 10)
        calls.take()
        connection.execute("BEGIN")
        insert(connection, 10)
        before = calls.take().count("write", "database")
        connection.execute("COMMIT")
        taken = calls.take()
        kinds = [call.file for call in taken.calls if call.what == "sync" or call.file == "database"]
    return {
        "writes_before": before, "writes_at_commit": taken.count("write", "database"),
        "synced_first": kinds[:1] == ["journal"],
    }  # fmt: skip


def page_sizes(folder: Path) -> Figures:
    """Update single rows at WAL/FULL with page sizes of 1 to 32 KiB, the page size set before WAL and after it."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for order in ("right", "late"):
            for kib in (1, 4, 8, 16, 32):
                path = folder / f"{order}-{kib}.db"
                with closing(connect_counting(path)) as connection:
                    pragma(connection, "page_size", 1024)
                    steps: list[tuple[str, str | int]] = [("page_size", kib * 1024), ("journal_mode", "wal")]
                    for name, value in steps if order == "right" else reversed(steps):
                        pragma(connection, name, value)
                    fill(connection, 500)
                    taken = _calls_of_updates(calls, connection, _TRANSACTIONS)
                    figures[f"kb_{order}_{kib}"] = taken.bytes_written("wal") / _TRANSACTIONS / 1000
                    figures[f"page_{order}_{kib}"] = pragma(connection, "page_size")
    return {**figures, "ratio": figures["kb_right_32"] / figures["kb_right_1"]}


def large_pages(folder: Path) -> Figures:
    """Compare pages of 4 and 32 KiB: bytes of a one-row transaction, size of the WAL, memory of the same cache."""
    figures: dict[str, float] = {}
    with counting() as calls:
        for kib in (4, 32):
            path = folder / f"{kib}.db"
            pragmas: Pragmas = {"page_size": kib * 1024, "journal_mode": "wal", "synchronous": "off"}
            with closing(connect_counting(path, **pragmas)) as connection:
                fill(connection, 500)
                calls.take()
                _update(connection, 2500, 500)
                taken = calls.take()
                ends = [call.offset_bytes + call.size_bytes for call in taken.calls if call.file == "wal"]
                figures[f"kb_{kib}"] = taken.bytes_written() / 2500 / 1000
                figures[f"wal_mb_{kib}"] = max(ends) / 1e6
    return {
        **figures,
        "ratio_bytes": figures["kb_32"] / figures["kb_4"],
        "ratio_wal": figures["wal_mb_32"] / figures["wal_mb_4"],
    }


def _calls_of_updates(calls: Calls, connection: sqlite3.Connection, count: int, spread: int = 500) -> Taken:
    """Return the calls of some one-row updates."""
    calls.take()
    _update(connection, count, spread)
    return calls.take()


def _update(connection: sqlite3.Connection, count: int, spread: int) -> None:
    for number in range(count):
        # A stride that is prime to the number of rows visits all of them, in the same order on every run.
        row = 1 + number * 7919 % spread
        connection.execute("UPDATE rows SET payload = randomblob(100) WHERE id = ?", (row,))
