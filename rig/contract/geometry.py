"""Where things stand on the disks that host and guest share, and the digest by which they compare a whole one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

# Of the disk that is recorded and cut, and the pieces in which it is read and digested.
DISK_MIB = 64
CHUNK_BYTES = 1 << 16
# A journal on a disk of its own takes the end: a verifier has one device for both, the data first.
JOURNAL_DISK_MIB = 8
DATA_DISK_MIB = DISK_MIB - JOURNAL_DISK_MIB
JOURNAL_FIRST_BYTE = DATA_DISK_MIB << 20
# An extent whose source offset is this or more has its bytes in the request itself: no entry of the log holds them.
LITERALS_FROM = 1 << 62
_ZEROS = bytes(CHUNK_BYTES)


def disk_digest(chunks: Iterable[bytes]) -> str:
    """Return a digest of a disk, given as chunks of `CHUNK_BYTES`: sha256 over the number and bytes of all but zeros.

    Most of a disk is zeros, and digesting these under emulation takes longer than much of what is measured.
    """
    found = hashlib.sha256()
    for number, chunk in enumerate(chunks):
        if chunk != _ZEROS:
            found.update(number.to_bytes(8, "little") + chunk)
    return found.hexdigest()
