"""The files of key-value stores that write logs of records in blocks of 32 KiB and tables that never change.

A record lies in one block, or in parts in several. Its header is little endian: a checksum u32, the length u16, and the
kind u8; a record that says to which log it belongs has four bytes more. A block ends with zeros where no header fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rig.engines.roles import ReadFile

BLOCK_BYTES = 32768
_HEADER_BYTES, _NUMBERED_HEADER_BYTES = 7, 11
_PARTS = {1: "whole", 2: "first part of", 3: "middle part of", 4: "last part of"}
# Kinds of records that have the number of their log.
_NUMBERED_FROM, _NUMBERED_UNTIL = 5, 9
_LISTED_MAX = 3
_LOG, _MANIFEST = re.compile(r"(?:.*/)?\d+\.log"), re.compile(r"(?:.*/)?MANIFEST-\d+")
_TABLE, _CURRENT = re.compile(r"(?:.*/)?\d+\.(?:ldb|sst)"), re.compile(r"(?:.*/)?(?:CURRENT|\d+\.dbtmp)")


@dataclass(frozen=True)
class RecordPart:
    """A record, or a part of one: its rank in the log from 1, its place in bytes, and which part it is."""

    rank: int
    begin: int
    end: int
    part: str


def parts(data: bytes) -> Iterator[RecordPart]:
    """Yield the parts of a log's beginning; a block ends at the first thing that is none."""
    rank = 0
    for block in range(0, len(data), BLOCK_BYTES):
        at, end = block, min(block + BLOCK_BYTES, len(data))
        while at + _HEADER_BYTES <= end:
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            is_numbered = _NUMBERED_FROM <= kind < _NUMBERED_UNTIL
            what = _PARTS.get(kind - _NUMBERED_FROM + 1 if is_numbered else kind)
            after = at + (_NUMBERED_HEADER_BYTES if is_numbered else _HEADER_BYTES) + length
            if what is None or after > end:
                break
            rank += what in {_PARTS[1], _PARTS[2]}
            yield RecordPart(rank, at, after, what)
            at = after


def records_between(data: bytes, begin: int, end: int) -> str:
    """Return which records are in a part of a log, in words; `data` is the log from its beginning."""
    seen = [record for record in parts(data) if record.begin < end and record.end > begin]
    if not seen:
        return "place without a record"
    words = [
        f"record {record.rank}" if record.part == _PARTS[1] else f"{record.part} record {record.rank}"
        for record in seen
    ]
    if len(words) <= _LISTED_MAX:
        return " and ".join(words)
    return f"records {seen[0].rank} to {seen[-1].rank}"


def role(path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
    """Return what a part of a file is; empty for a file that holds no data of the database."""
    for pattern, name in ((_LOG, "the log"), (_MANIFEST, "the manifest")):
        if pattern.fullmatch(path):
            end = offset_bytes + length_bytes
            return f"{records_between(read(path, 0, end), offset_bytes, end)} of {name}"
    if _CURRENT.fullmatch(path):
        return "name of the manifest that counts"
    return "part of a table" if _TABLE.fullmatch(path) else ""
