"""What a part of a file is: a page of a tablespace, the doublewrite buffer, the redo log, a binary log.

Layouts: storage/innobase/include/fil0fil.h, trx0sys.h and log0log.h of MariaDB 10.8 and later. Numbers are big endian.
"""

from __future__ import annotations

import re

from rig.engines.roles import ReadFile

__all__ = ["role"]

_PAGE_BYTES = 16384
_REDO, _SYSTEM = re.compile(r"(?:.*/)?ib_logfile\d+"), re.compile(r"(?:.*/)?ibdata1")
_TABLE, _BINARY_LOG = re.compile(r"(?:.*/)?[^/]+\.ibd"), re.compile(r"(?:.*/)?binlog\.\d+")
_UNDO, _ARIA = re.compile(r"(?:.*/)?undo\d+"), re.compile(r"(?:.*/)?aria_log.*")
# The redo log begins with its header and two checkpoints, each in a block of its own.
_REDO_BLOCK_BYTES = 4096
_REDO_HEAD = ("header of the redo log", "first checkpoint of the redo log", "second checkpoint of the redo log")
_KINDS = {
    2: "undo log", 3: "segments", 5: "change buffer bitmap", 6: "system", 7: "transaction system",
    8: "header of the tablespace", 9: "extents", 10: "large value", 17855: "index",
}  # fmt: skip
# The page of the transaction system says where the doublewrite buffer is: two runs of 64 pages.
_DOUBLEWRITE_AT, _DOUBLEWRITE_MAGIC, _DOUBLEWRITE_PAGES = 6 * _PAGE_BYTES - 200, 536853855, 64
_LISTED_MAX = 3


def role(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    """Return what a part of a file is; empty for a file that holds no data of the database."""
    if _REDO.fullmatch(path):
        number = offset_bytes // _REDO_BLOCK_BYTES
        return _REDO_HEAD[number] if number < len(_REDO_HEAD) else "redo log"
    if _BINARY_LOG.fullmatch(path):
        return "binary log"
    if _ARIA.fullmatch(path):
        return "log of Aria"
    is_system = bool(_SYSTEM.fullmatch(path))
    if not (is_system or _TABLE.fullmatch(path) or _UNDO.fullmatch(path)):
        return ""
    doublewrite = _doublewrite(path, read) if is_system else set()
    numbers = range(offset_bytes // _PAGE_BYTES, -(-(offset_bytes + length_bytes) // _PAGE_BYTES))
    parts = [
        f"page {number} (doublewrite buffer)" if number in doublewrite else _page(path, number, read)
        for number in numbers[:_LISTED_MAX]
    ]
    more = len(numbers) - len(parts)
    return " and ".join(parts) + (f" and {more} more pages" if more > 0 else "")


def _page(path: str, number: int, read: ReadFile) -> str:
    kind = int.from_bytes(read(path, number * _PAGE_BYTES + 24, 2), "big")
    return f"page {number} ({_KINDS.get(kind, 'unused')})"


def _doublewrite(path: str, read: ReadFile) -> set[int]:
    magic, *firsts = (int.from_bytes(read(path, _DOUBLEWRITE_AT + at, 4), "big") for at in (10, 14, 18))
    if magic != _DOUBLEWRITE_MAGIC:
        return set()
    return {first + rank for first in firsts for rank in range(_DOUBLEWRITE_PAGES)}
