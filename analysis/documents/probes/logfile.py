"""Probes of the WAL as a file: when it is checkpointed, what is in it, how large it gets, where it is written."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from pathlib import Path

from rig.analysis.documents.probes.calls import VfsCall, counting
from rig.analysis.documents.probes.databases import (
    Pragmas,
    connect,
    connect_counting,
    fill,
    insert,
    pragma,
    shm_of,
    size_bytes,
    wal_of,
)
from rig.analysis.documents.probes.probe import Figures

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_IDLE_S = 1.5


def first_checkpoint(folder: Path) -> Figures:
    """Commit one page at a time until the database file changes, with the default threshold and with a tenth of it."""
    frames = {}
    for name, pragmas in (("default", {}), ("tenth", {"wal_autocheckpoint": 100})):
        path = folder / f"{name}.db"
        with closing(connect(path, journal_mode="wal", synchronous="off", **pragmas)) as connection:
            fill(connection, 1)
            before = _digest(path)
            while _digest(path) == before and size_bytes(wal_of(path)) < 64 << 20:
                connection.execute("UPDATE rows SET payload = randomblob(100)")
            frames[name] = _frames(wal_of(path), 4096)
    return {"frames": frames["default"], "frames_tenth": frames["tenth"]}


def manual_checkpoint(folder: Path) -> Figures:
    """Turn automatic checkpoints off, write past the threshold, and ask for one."""
    path = folder / "manual.db"
    with closing(connect(path, journal_mode="wal", synchronous="off", wal_autocheckpoint=0)) as connection:
        fill(connection, 1)
        before = _digest(path)
        for _ in range(1100):
            connection.execute("UPDATE rows SET payload = randomblob(100)")
        frames, moved_alone = _frames(wal_of(path), 4096), _digest(path) != before
        busy, log, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return {
            "frames": frames, "moved_alone": moved_alone, "moved_asked": _digest(path) != before,
            "busy": busy, "log_frames": log, "checkpointed": done,
        }  # fmt: skip


def reader_sees_log(folder: Path) -> Figures:
    """Commit a row without a checkpoint and read it over a new connection; then checkpoint under a reader."""
    path = folder / "log.db"
    with closing(connect(path, journal_mode="wal")) as writer:
        fill(writer, 10)
        writer.execute("PRAGMA wal_checkpoint").fetchall()
        before = _digest(path)
        insert(writer, 1)
        unchanged = _digest(path) == before
        with closing(connect(path)) as reader:
            rows = reader.execute("SELECT count(*) FROM rows").fetchone()[0]
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rows").fetchall()
            writer.execute("PRAGMA wal_checkpoint").fetchall()
            changed_under_reader = _digest(path) != before
    return {"rows": rows, "unchanged": unchanged, "changed_under_reader": changed_under_reader}


def truncation(folder: Path) -> Figures:
    """Look at the size of the WAL after each of ten automatic checkpoints; then cut it on purpose."""
    path = folder / "sizes.db"
    with closing(connect(path, journal_mode="wal", synchronous="off", wal_autocheckpoint=50)) as connection:
        fill(connection, 1)
        shrunk, last, checkpoints, before = 0, 0, 0, _digest(path)
        while checkpoints < 10:
            connection.execute("UPDATE rows SET payload = randomblob(100)")
            now = size_bytes(wal_of(path))
            shrunk, last = shrunk + (now < last), now
            if (digest := _digest(path)) != before:
                checkpoints, before = checkpoints + 1, digest
        salt = _salt(wal_of(path))
        for _ in range(60):
            connection.execute("UPDATE rows SET payload = randomblob(100)")
        salt_changed = _salt(wal_of(path)) != salt
        pragma(connection, "wal_checkpoint(TRUNCATE)")
        return {
            "checkpoints": checkpoints, "shrunk": shrunk, "kib": last / 1024, "salt_changed": salt_changed,
            "bytes_truncated": size_bytes(wal_of(path)),
        }  # fmt: skip


def sizes_by_page(folder: Path) -> Figures:
    """Write 2,500 one-page transactions at three page sizes and look at how large the WAL got."""
    figures: dict[str, float] = {}
    for size in (1024, 4096, 32768):
        path = folder / f"{size}.db"
        pragmas: Pragmas = {"page_size": size, "journal_mode": "wal", "synchronous": "off"}
        with closing(connect(path, **pragmas)) as connection:
            fill(connection, 1)
            for _ in range(2500):
                connection.execute("UPDATE rows SET payload = randomblob(100)")
            figures[f"mib_{size}"] = size_bytes(wal_of(path)) / (1 << 20)
    with closing(connect(folder / "default.db")) as connection:
        return {**figures, "page_size": pragma(connection, "page_size")}


def idle(folder: Path) -> Figures:
    """Commit 20 times in WAL at NORMAL and wait; then go on until a checkpoint comes."""
    path = folder / "idle.db"
    with (
        counting() as calls,
        closing(connect_counting(path, journal_mode="wal", synchronous="normal")) as connection,
    ):
        fill(connection, 1)
        before = _digest(path)
        calls.take()
        insert(connection, 20)
        time.sleep(_IDLE_S)
        moved_idle, syncs_idle = _digest(path) != before, calls.take().count("sync")
        insert(connection, 1100)
        syncs_later = calls.take().count("sync")
        return {
            "idle_s": _IDLE_S, "moved_idle": moved_idle, "syncs_idle": syncs_idle, "syncs_later": syncs_later,
            "moved_later": _digest(path) != before,
        }  # fmt: skip


def append_only(folder: Path) -> Figures:
    """Note the offset of every write to the WAL and to the database over 50 checkpoints, and over none."""
    figures: dict[str, float] = {}
    for name, threshold in (("checkpoints", 20), ("none", 0)):
        path = folder / f"{name}.db"
        pragmas: Pragmas = {"journal_mode": "wal", "synchronous": "off", "wal_autocheckpoint": threshold}
        with counting() as calls, closing(connect_counting(path, **pragmas)) as connection:
            fill(connection, 1)
            calls.take()
            for _ in range(20 * 50):
                connection.execute("UPDATE rows SET payload = randomblob(100)")
            taken = calls.take().calls
        figures[f"share_{name}"] = _share_overwritten([call for call in taken if call.file == "wal"])
        figures[f"in_place_{name}"] = sum(call.what == "write" and call.file == "database" for call in taken)
    return figures


def index_size(folder: Path) -> Figures:
    """Fill the WAL to 1,000 frames of 4 KiB and of 32 KiB, and to 5,000 of 4 KiB, and look at it and its index."""
    figures: dict[str, float] = {}
    for name, size, frames in (("default", 4096, 1000), ("large_pages", 32768, 1000), ("long", 4096, 5000)):
        path = folder / f"{name}.db"
        pragmas: Pragmas = {"page_size": size, "journal_mode": "wal", "synchronous": "off", "wal_autocheckpoint": 0}
        with closing(connect(path, **pragmas)) as connection:
            fill(connection, 1)
            for _ in range(frames):
                connection.execute("UPDATE rows SET payload = randomblob(100)")
            figures[f"wal_mib_{name}"] = size_bytes(wal_of(path)) / (1 << 20)
            figures[f"shm_kib_{name}"] = size_bytes(shm_of(path)) / 1024
    return figures


def _share_overwritten(calls: list[VfsCall]) -> float:
    """Return the share of written bytes that landed where the file had been written before."""
    end = overwritten = total = 0
    for call in calls:
        if call.what == "write":
            overwritten += max(0, min(end, call.offset_bytes + call.size_bytes) - call.offset_bytes)
            total += call.size_bytes
            end = max(end, call.offset_bytes + call.size_bytes)
    return overwritten / total if total else 0


def _frames(path: Path, page_bytes: int) -> int:
    return max(0, size_bytes(path) - _HEADER_BYTES) // (page_bytes + _FRAME_HEADER_BYTES)


def _salt(path: Path) -> bytes:
    return path.read_bytes()[16:24]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
