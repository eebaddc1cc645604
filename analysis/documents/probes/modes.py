"""Probes of journal modes: what a fresh database has, what persists, what is refused, and where."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path

from rig.analysis.documents.probes.calls import counting
from rig.analysis.documents.probes.databases import (
    Pragmas,
    connect,
    connect_counting,
    fill,
    insert,
    pragma,
    refusal,
    row_count,
    size_bytes,
    wal_of,
)
from rig.analysis.documents.probes.probe import Figures

_MODES = ("delete", "truncate", "persist", "memory", "off", "wal")
_LEVELS = ("off", "normal", "full", "extra")


def default_mode(folder: Path) -> Figures:
    """Return journal mode and sync level as a fresh database reports them, before and after it is put into WAL."""
    with closing(connect(folder / "fresh.db")) as fresh:
        before, level = pragma(fresh, "journal_mode"), pragma(fresh, "synchronous")
        pragma(fresh, "journal_mode", "wal")
        return {
            "mode": before, "level": level,
            "mode_after": pragma(fresh, "journal_mode"), "level_after": pragma(fresh, "synchronous"),
        }  # fmt: skip


def journal_left_out(folder: Path) -> Figures:
    """Count the syncs of an update at the defaults and with no journal at all."""
    syncs = {}
    with counting() as calls:
        for mode in ("delete", "off"):
            with closing(connect_counting(folder / f"{mode}.db", journal_mode=mode)) as connection:
                fill(connection, 100)
                calls.take()
                for number in range(1, 11):
                    connection.execute("UPDATE rows SET payload = randomblob(100) WHERE id = ?", (number,))
                taken = calls.take()
                syncs[mode] = taken.count("sync") / 10, taken.count("write", "journal")
    with closing(connect(folder / "default.db")) as fresh:
        default = pragma(fresh, "journal_mode")
    return {
        "mode": default, "syncs_delete": syncs["delete"][0], "syncs_off": syncs["off"][0],
        "journal_writes_delete": syncs["delete"][1], "journal_writes_off": syncs["off"][1],
    }  # fmt: skip


def levels(folder: Path) -> Figures:
    """Set each journal mode with each sync level, and count the syncs of a transaction in WAL and DELETE."""
    accepted = 0
    for mode, (rank, level) in itertools.product(_MODES, enumerate(_LEVELS)):
        pragmas: Pragmas = {"journal_mode": mode, "synchronous": level}
        with closing(connect(folder / f"{mode}-{level}.db", **pragmas)) as connection:
            accepted += pragma(connection, "journal_mode") == mode and pragma(connection, "synchronous") == rank
    return {"pairs": accepted, **{f"syncs_{name}": count for name, count in _syncs_by_level(folder).items()}}


def _syncs_by_level(folder: Path) -> dict[str, float]:
    figures = {}
    with counting() as calls:
        for mode, level in itertools.product(("delete", "wal"), _LEVELS):
            pragmas: Pragmas = {"journal_mode": mode, "synchronous": level}
            with closing(connect_counting(folder / f"syncs-{mode}-{level}.db", **pragmas)) as connection:
                fill(connection, 10)
                calls.take()
                insert(connection, 10)
                figures[f"{mode}_{level}"] = calls.take().count("sync") / 10
    return figures


def enabling(folder: Path) -> Figures:
    """Look at the files right after WAL was asked for on an empty database, and after the first write."""
    path = folder / "fresh.db"
    with closing(connect(path)) as connection:
        answer = pragma(connection, "journal_mode", "wal")
        wal_at_once, database_bytes = wal_of(path).exists(), size_bytes(path)
        fill(connection, 1)
        wal_after_write = wal_of(path).exists()
    return {
        "answer": answer, "wal_at_once": wal_at_once, "wal_after_write": wal_after_write,
        "database_bytes": database_bytes, "answer_without_shm": _answer_without_shm(folder),
    }  # fmt: skip


def _answer_without_shm(folder: Path) -> str:
    """Return what a VFS without shared memory answers to the wish for WAL."""
    import sqlite3

    uri = f"{(folder / 'dotfile.db').as_uri()}?vfs=unix-dotfile"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        return str(pragma(connection, "journal_mode", "wal"))


def leaving(folder: Path) -> Figures:
    """Go back from WAL to DELETE while another connection is open, and alone."""
    path = folder / "shared.db"
    with closing(connect(path, journal_mode="wal")) as connection:
        fill(connection, 10)
        with closing(connect(path)) as other:
            other.execute("SELECT count(*) FROM rows").fetchall()
            words = refusal(connection, "PRAGMA journal_mode = delete")
            mode_shared = pragma(connection, "journal_mode")
        mode_alone = pragma(connection, "journal_mode", "delete")
    return {"words": words, "mode_shared": mode_shared, "mode_alone": mode_alone}


def persistence(folder: Path) -> Figures:
    """Set modes and levels, open the database again, and read both back; then two connections with two levels."""
    figures: dict[str, str | int] = {}
    for mode in ("wal", "truncate"):
        path = folder / f"{mode}.db"
        with closing(connect(path, journal_mode=mode, synchronous="off")) as connection:
            fill(connection, 1)
        with closing(connect(path)) as again:
            figures[f"{mode}_again"], figures[f"{mode}_level_again"] = (
                pragma(again, "journal_mode"),
                pragma(again, "synchronous"),
            )
    path = folder / "wal.db"
    with closing(connect(path, synchronous="off")) as one, closing(connect(path, synchronous="full")) as other:
        figures["level_one"], figures["level_other"] = pragma(one, "synchronous"), pragma(other, "synchronous")
    return figures


def any_application(folder: Path) -> Figures:
    """Put a database into WAL, then meet an application that sets its own mode, and one that cannot share memory."""
    import sqlite3

    path = folder / "application.db"
    with closing(connect(path, journal_mode="wal")) as connection:
        fill(connection, 10)
    with closing(sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True)) as connection:
        words = refusal(connection, "SELECT count(*) FROM rows")
    mode_before = _mode(path)
    with closing(connect(path, journal_mode="truncate")) as connection:
        insert(connection, 1)
    return {"words": words, "mode_before": mode_before, "mode_after": _mode(path), "rows": row_count(path)}


def vacuum(folder: Path) -> Figures:
    """Vacuum a database in WAL, once as it is and once with another page size asked for; then the same in DELETE."""
    figures: dict[str, str | int] = {}
    for mode in ("wal", "delete"):
        path = folder / f"{mode}.db"
        with closing(connect(path, journal_mode=mode)) as connection:
            fill(connection, 1000)
            connection.execute("DELETE FROM rows WHERE id % 2")
            before = pragma(connection, "page_count")
            connection.execute("VACUUM")
            figures[f"pages_before_{mode}"], figures[f"pages_after_{mode}"] = before, pragma(connection, "page_count")
            pragma(connection, "page_size", 8192)
            connection.execute("VACUUM")
            figures[f"page_size_{mode}"] = pragma(connection, "page_size")
        figures[f"mode_{mode}"], figures[f"rows_{mode}"] = _mode(path), row_count(path)
    return figures


def _mode(path: Path) -> str:
    with closing(connect(path)) as connection:
        return str(pragma(connection, "journal_mode"))
