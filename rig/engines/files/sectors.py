"""What the patterns write: sectors that each say which transaction wrote them, and where.

A sector repeats its number, its place and a word of the seed. So neither a part of a sector nor a sector in the wrong
place passes for a whole sector.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter

SECTOR_BYTES = 512
_TAG = struct.Struct("<III")
_FILL = b"\x5a" * (SECTOR_BYTES % _TAG.size)
_KINDS_SHOWN = 4
# What `author` returns for a sector that no transaction wrote.
NOBODY = -1


def sectors_of(seed: int, number: int, first: int, count: int) -> bytes:
    """Return `count` sectors of a transaction, from sector `first` of its file on; number 0 is the preparation."""
    return b"".join(_sector(seed, number, place) for place in range(first, first + count))


def author(seed: int, place: int, sector: bytes) -> int:
    """Return the number of the transaction that wrote a sector of a file, or NOBODY."""
    if len(sector) != SECTOR_BYTES:
        return NOBODY
    number = _TAG.unpack_from(sector)[1]
    return number if sector == _sector(seed, number, place) else NOBODY


def authors(seed: int, first: int, data: bytes) -> set[int]:
    """Return the numbers of all transactions that wrote `data`, a part of a file from sector `first` on."""
    offsets = range(0, len(data), SECTOR_BYTES)
    return {author(seed, first + at // SECTOR_BYTES, data[at : at + SECTOR_BYTES]) for at in offsets}


def describe(seed: int, data: bytes) -> str:
    """Return what a file holds, for example `9216 bytes: 18 sectors of zeros`."""
    sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
    kinds = Counter(_kind(seed, place, sector) for place, sector in enumerate(sectors))
    words = ", ".join(f"{count} sectors of {kind}" for kind, count in kinds.most_common(_KINDS_SHOWN))
    return f"{len(data)} bytes: {words}" if words else "0 bytes"


def _kind(seed: int, place: int, sector: bytes) -> str:
    if not any(sector):
        return "zeros"
    number = author(seed, place, sector)
    return "what nobody wrote there" if number == NOBODY else f"transaction {number}"


def _sector(seed: int, number: int, place: int) -> bytes:
    tag = _TAG.pack(zlib.crc32(b"%d" % seed), number, place)
    return tag * (SECTOR_BYTES // _TAG.size) + _FILL
