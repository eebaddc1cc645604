"""What a part of a file is: one of the two meta pages, or a page of a tree (lmdb.h and mdb.c of LMDB 0.9)."""

from __future__ import annotations

from rig.engines.roles import ReadFile

__all__ = ["role"]

_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_KINDS = {_BRANCH: "branch of a tree", _LEAF: "leaf of a tree", _OVERFLOW: "page of a large value", _META: "meta page"}
_META_COUNT = 2
_HEADER_BYTES = 16
# In a meta page after its header: the address and size of the map, two databases, the last page, then this.
_TRANSACTION_AT = _HEADER_BYTES + 4 + 4 + 8 + 8 + 2 * 48 + 8
# In the first database of a meta page, where the page size is kept in place of padding.
_PAGE_BYTES_AT = _HEADER_BYTES + 24
_LISTED_MAX = 4


def role(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    """Return what a part of a file is; empty for any file but the one with the data."""
    if not path.endswith("data.mdb"):
        return ""
    size = int.from_bytes(read(path, _PAGE_BYTES_AT, 4), "little") or 4096
    numbers = range(offset_bytes // size, -(-(offset_bytes + length_bytes) // size))
    pages = [_page(path, number, size, read) for number in numbers[:_LISTED_MAX]]
    more = len(numbers) - len(pages)
    return " and ".join(pages) + (f" and {more} more pages" if more > 0 else "")


def _page(path: str, number: int, size: int, read: ReadFile) -> str:
    head = read(path, number * size, _TRANSACTION_AT + 8)
    flags = int.from_bytes(head[10:12], "little") & 0xF
    if number < _META_COUNT:
        transaction = int.from_bytes(head[_TRANSACTION_AT : _TRANSACTION_AT + 8], "little")
        return f"meta page {number} (transaction {transaction})"
    return f"page {number} ({_KINDS.get(flags, 'continued')})"
