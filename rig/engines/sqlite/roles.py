"""What a part of a SQLite file is: a page of the database, a record of the rollback journal, a frame of the WAL.

Formats: sqlite.org/fileformat2.html. Numbers are big endian.
"""

from __future__ import annotations

from collections.abc import Sequence

from rig.engines.roles import ReadFile

__all__ = ["role"]

_HEADER_BYTES = 100
_KINDS = {2: "interior of an index", 5: "interior of a table", 10: "leaf of an index", 13: "leaf of a table"}
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_HEADER_BYTES = 28
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_RECORD_EXTRA_BYTES = 8
_LISTED_MAX = 4


def role(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    """Return what a part of a file is; empty for a file that is none of a database."""
    if path.endswith("-wal"):
        return _of_wal(path, offset_bytes, length_bytes, read)
    if path.endswith("-journal"):
        return _of_journal(path, offset_bytes, length_bytes, read)
    if path.endswith("-shm"):
        return "shared memory of the WAL, which is rebuilt"
    return _of_database(path, offset_bytes, length_bytes, read) if path.endswith(".db") else ""


def _of_database(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    size = _page_bytes(_number(read(path, 16, 2)))
    pages = range(offset_bytes // size, -(-(offset_bytes + length_bytes) // size))
    return _joint_text([_page(path, number, size, read) for number in pages], "page")


def _page(path: str, index: int, size: int, read: ReadFile) -> str:
    kind = read(path, index * size + (0 if index else _HEADER_BYTES), 1)
    what = _KINDS.get(kind[0] if kind else 0, "overflow or free")
    return f"page {index + 1} ({'header and schema' if index == 0 else what})"


def _of_journal(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    header = read(path, 0, _JOURNAL_HEADER_BYTES)
    sector, size = _number(header[20:24]), _number(header[24:28])
    if header[:8] != _JOURNAL_MAGIC or not sector or not size:
        begins = offset_bytes < _JOURNAL_HEADER_BYTES
        return "zeroed header of the journal, which ends it" if begins else "record of a journal without a header"
    parts = []
    if offset_bytes < sector:
        parts.append(f"header of the journal ({_number(header[8:12])} records)")
    whole = size + _RECORD_EXTRA_BYTES
    first = max(0, offset_bytes - sector) // whole
    for rank in range(first, -(-max(0, offset_bytes + length_bytes - sector) // whole)):
        page = _number(read(path, sector + rank * whole, 4))
        parts.append(f"record {rank + 1} (page {page})" if page else f"place of record {rank + 1}, unused")
    return _joint_text(parts, "record")


def _of_wal(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    header = read(path, 0, _WAL_HEADER_BYTES)
    size = _page_bytes(_number(header[8:12]))
    parts = ["header of the WAL"] if offset_bytes < _WAL_HEADER_BYTES else []
    whole = size + _FRAME_HEADER_BYTES
    first = max(0, offset_bytes - _WAL_HEADER_BYTES) // whole
    last = -(-max(0, offset_bytes + length_bytes - _WAL_HEADER_BYTES) // whole)
    parts += [_frame(path, rank, whole, header[16:24], read) for rank in range(first, last)]
    return _joint_text(parts, "frame")


def _frame(path: str, rank: int, whole: int, salts: bytes, read: ReadFile) -> str:
    head = read(path, _WAL_HEADER_BYTES + rank * whole, _FRAME_HEADER_BYTES)
    if not _number(head[:4]):
        return f"place of frame {rank + 1}, unused"
    if head[8:16] != salts:
        return f"frame {rank + 1} of an earlier round"
    return f"frame {rank + 1} (page {_number(head[:4])}{', commits' if _number(head[4:8]) else ''})"


def _joint_text(parts: Sequence[str], what: str) -> str:
    if len(parts) <= _LISTED_MAX:
        return " and ".join(parts)
    return f"{', '.join(parts[:_LISTED_MAX])} and {len(parts) - _LISTED_MAX} more {what}s"


def _page_bytes(stored: int) -> int:
    return {0: 4096, 1: 65536}.get(stored, stored)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
