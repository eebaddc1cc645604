"""Probes of who blocks whom: connections that meet, in rollback mode and in WAL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rig.analysis.documents.probes.calls import counting
from rig.analysis.documents.probes.databases import connect, connect_counting, fill, insert, refusal, size_bytes, wal_of
from rig.analysis.documents.probes.probe import Figures

_READ = "SELECT count(*) FROM rows"
_LONG_WRITES = 6000


def reader_under_write(folder: Path) -> Figures:
    """Read while a write transaction is open in rollback mode, with its change not committed, then under EXCLUSIVE."""
    path = folder / "rollback.db"
    with closing(connect(path)) as writer, closing(connect(path)) as reader:
        fill(writer, 10)
        writer.execute("BEGIN IMMEDIATE")
        insert(writer, 1)
        words = refusal(reader, _READ)
        rows = reader.execute(_READ).fetchone()[0] if not words else -1
        writer.execute("COMMIT")
        writer.execute("BEGIN EXCLUSIVE")
        words_exclusive = refusal(reader, _READ)
        writer.execute("COMMIT")
    return {"is_refused": bool(words), "rows": rows, "words_exclusive": words_exclusive}


def commit_meets_reader(folder: Path) -> Figures:
    """Commit while a reader is in the middle of its result, and read while that commit waits; in both modes."""
    figures: dict[str, str | bool] = {}
    for mode in ("delete", "wal"):
        path = folder / f"{mode}.db"
        with (
            closing(connect(path, journal_mode=mode)) as writer,
            closing(connect(path)) as reader,
            closing(connect(path)) as newcomer,
        ):
            fill(writer, 100)
            cursor = reader.execute("SELECT id FROM rows")
            cursor.fetchone()
            writer.execute("BEGIN")
            insert(writer, 1)
            figures[f"commit_{mode}"] = refusal(writer, "COMMIT")
            figures[f"newcomer_{mode}"] = refusal(newcomer, _READ)
            cursor.close()
            figures[f"again_{mode}"] = refusal(writer, "COMMIT") if writer.in_transaction else ""
    return figures


def one_writer(folder: Path) -> Figures:
    """Let two writers and two readers meet in WAL; and let the second writer try again after the first."""
    path = folder / "wal.db"
    with (
        closing(connect(path, journal_mode="wal")) as first,
        closing(connect(path)) as second,
        closing(connect(path)) as reader,
        closing(connect(path)) as other,
    ):
        fill(first, 10)
        first.execute("BEGIN IMMEDIATE")
        insert(first, 1)
        readers = [refusal(reader, _READ), refusal(other, _READ)]
        second_words = refusal(second, "BEGIN IMMEDIATE")
        first.execute("COMMIT")
        second_later = refusal(second, "BEGIN IMMEDIATE")
    return {"readers_refused": sum(map(bool, readers)), "second": second_words, "second_later": second_later}


def burst(folder: Path) -> Figures:
    """Write 100 rows in WAL one by one and as one transaction, and count syncs; and let two writers meet."""
    path = folder / "wal.db"
    with counting() as calls, closing(connect_counting(path, journal_mode="wal")) as writer:
        fill(writer, 10)
        calls.take()
        insert(writer, 100)
        singly = calls.take().count("sync")
        writer.execute("BEGIN")
        insert(writer, 100)
        writer.execute("COMMIT")
        together = calls.take().count("sync")
        with closing(connect(path)) as other:
            writer.execute("BEGIN IMMEDIATE")
            words = refusal(other, "BEGIN IMMEDIATE")
            writer.execute("COMMIT")
            words_later = refusal(other, "BEGIN IMMEDIATE")
    return {"syncs_singly": singly, "syncs_together": together, "second": words, "second_later": words_later}


def starvation(folder: Path) -> Figures:
    """Write 6,000 rows of 3 KB in WAL with and without a reader that keeps its transaction open."""
    figures: dict[str, float] = {}
    for name in ("alone", "read"):
        path = folder / f"{name}.db"
        with closing(connect(path, journal_mode="wal", synchronous="off")) as writer, closing(connect(path)) as reader:
            fill(writer, 10)
            if name == "read":
                reader.execute("BEGIN")
                reader.execute(_READ).fetchall()
            insert(writer, _LONG_WRITES, 3000)
            figures[f"wal_mb_{name}"] = size_bytes(wal_of(path)) / 1e6
            if name == "read":
                reader.execute("COMMIT")
                insert(writer, 10)
                writer.execute("PRAGMA wal_checkpoint").fetchall()
                figures["wal_mb_after"] = size_bytes(wal_of(path)) / 1e6
    return {**figures, "ratio": figures["wal_mb_read"] / figures["wal_mb_alone"]}
