"""The layout of the disks that host and guest share, and the digest with which they compare a whole disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

# The chunk in which a disk is read and digested; a whole number of them make a disk.
CHUNK_BYTES = 1 << 16
# An extent with a source offset from here on has its bytes in the request itself, because the log does not hold them.
LITERALS_FROM = 1 << 62
_ZEROS = bytes(CHUNK_BYTES)


def disk_digest(chunks: Iterable[bytes]) -> str:
    """Return a digest of a disk given in chunks of `CHUNK_BYTES`: sha256 over number and bytes of each non-zero chunk.

    Most of a disk is zeros, and under emulation digesting them takes longer than much of what is measured.
    """
    return sparse_digest(enumerate(chunks))


def sparse_digest(chunks: Iterable[tuple[int, bytes]]) -> str:
    """Return the `disk_digest` of a disk from chunks with their numbers; all chunks that are not given are zeros."""
    hasher = hashlib.sha256()
    for number, chunk in chunks:
        if chunk != _ZEROS:
            hasher.update(number.to_bytes(8, "little") + chunk)
    return hasher.hexdigest()
