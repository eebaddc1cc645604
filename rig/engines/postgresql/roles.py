"""What a part of a file is: a page of the WAL, a block of a relation, the control file, the status of transactions.

Layouts: src/include/access/xlog_internal.h and src/include/storage/bufpage.h. Numbers are in the machine's order,
little endian.
"""

from __future__ import annotations

import re

from rig.engines.roles import ReadFile

__all__ = ["role"]

_PAGE_BYTES = 8192
_WAL = re.compile(r"(?:.*/)?pg_wal/[0-9A-F]{24}")
_RELATION = re.compile(r"(?:.*/)?(?:base/\d+|global)/(?P<number>\d+)(?:_(?P<fork>\w+))?(?:\.(?P<segment>\d+))?")
_CONTROL, _STATUS = re.compile(r"(?:.*/)?global/pg_control"), re.compile(r"(?:.*/)?pg_xact/[0-9A-F]+")
_FORKS = {"fsm": "free space map of ", "vm": "visibility map of ", "init": "empty copy of ", None: ""}
_SEGMENT_BLOCKS = (1 << 30) // _PAGE_BYTES
_LISTED_MAX = 3


def role(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    """Return what a part of a file is; empty for a file that holds no data of the database."""
    if _CONTROL.fullmatch(path):
        return "control file"
    if _STATUS.fullmatch(path):
        return "status of transactions"
    numbers = range(offset_bytes // _PAGE_BYTES, -(-(offset_bytes + length_bytes) // _PAGE_BYTES))
    if _WAL.fullmatch(path):
        return _joint_text([_wal_page(path, number, read) for number in numbers])
    relation = _RELATION.fullmatch(path)
    if relation is None:
        return ""
    first = int(relation["segment"] or 0) * _SEGMENT_BLOCKS
    of_what = f"{_FORKS.get(relation['fork'], '')}relation {relation['number']}"
    return _joint_text([_block(path, number, first, read) for number in numbers]) + f" of the {of_what}"


def _wal_page(path: str, number: int, read: ReadFile) -> str:
    address = int.from_bytes(read(path, number * _PAGE_BYTES + 8, 8), "little")
    return f"page of the WAL at {_position(address)}"


def _block(path: str, number: int, first: int, read: ReadFile) -> str:
    head = read(path, number * _PAGE_BYTES, 8)
    changed = int.from_bytes(head[:4], "little") << 32 | int.from_bytes(head[4:8], "little")
    return f"block {first + number} (changed at {_position(changed)})"


def _position(address: int) -> str:
    return f"{address >> 32:X}/{address & 0xFFFFFFFF:X}"


def _joint_text(parts: list[str]) -> str:
    more = len(parts) - _LISTED_MAX
    return " and ".join(parts[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
