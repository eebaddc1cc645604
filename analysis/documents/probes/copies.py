"""Probes of copies: what a database is worth without its WAL, and which files there are when."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from rig.analysis.documents.probes.databases import connect, fill, insert, row_count, size_bytes, wal_of
from rig.analysis.documents.probes.probe import Figures

_COMMITS = 50


def without_log(folder: Path) -> Figures:
    """Copy a database in use with and without its WAL, as a killed process leaves it; then after a clean close."""
    path = folder / "live.db"
    with closing(connect(path, journal_mode="wal")) as connection:
        fill(connection, 0)
        insert(connection, _COMMITS)
        (folder / "alone").mkdir()
        (folder / "both").mkdir()
        shutil.copy(path, folder / "alone")
        shutil.copy(path, folder / "both")
        shutil.copy(wal_of(path), folder / "both")
    (folder / "closed").mkdir()
    shutil.copy(path, folder / "closed")
    return {
        "commits": _COMMITS, "rows_alone": max(0, row_count(folder / "alone" / path.name)),
        "table_alone": row_count(folder / "alone" / path.name) >= 0,
        "rows_both": row_count(folder / "both" / path.name), "rows_closed": row_count(folder / "closed" / path.name),
    }  # fmt: skip


def when_there_is_a_log(folder: Path) -> Figures:
    """Look for the WAL file while a database is open, after a clean close, and after a process died."""
    path = folder / "seen.db"
    with closing(connect(path, journal_mode="wal")) as connection:
        fill(connection, _COMMITS)
        while_open = size_bytes(wal_of(path))
        (folder / "died").mkdir()
        shutil.copy(path, folder / "died")
        shutil.copy(wal_of(path), folder / "died")
    died = folder / "died" / path.name
    after_death = wal_of(died).exists()
    rows = row_count(died)
    return {
        "bytes_open": while_open, "after_close": wal_of(path).exists(), "after_death": after_death,
        "rows_after_death": rows, "after_next_close": wal_of(died).exists(),
    }  # fmt: skip
