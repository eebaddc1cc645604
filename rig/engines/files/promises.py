"""The patterns by word, and what the manual pages of Linux promise about each: without a sync, nothing.

A word names what is done and the call after it; `none` means no call. Sections refer to the Linux man-pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_FSYNC = "fsync(2), DESCRIPTION"
_FDATASYNC = "fdatasync(2), DESCRIPTION: metadata that a later read needs is flushed as well"
_ODSYNC = "open(2), O_DSYNC"
_DIRECTORY = "fsync(2), DESCRIPTION: the entry in the directory needs an fsync of the directory"
_MSYNC = "msync(2), MS_SYNC"


class Kept(NamedTuple):
    """The promise for a pattern: every transaction, or only their order; without a source, nothing."""

    source: str = ""
    only_order: bool = False


PATTERNS: Mapping[str, Kept] = {
    # A record at the end of a file.
    "append-none": Kept(),
    "append-fdatasync": Kept(_FDATASYNC),
    "append-fsync": Kept(_FSYNC),
    "append-odsync": Kept(_ODSYNC),
    # Two blocks in place.
    "overwrite-none": Kept(),
    # sync_file_range(2), Warning: it flushes no disk cache.
    "overwrite-range": Kept(),
    "overwrite-fdatasync": Kept(_FDATASYNC),
    "overwrite-fsync": Kept(_FSYNC),
    "overwrite-odsync": Kept(_ODSYNC),
    "mapped-none": Kept(),
    "mapped-msync": Kept(_MSYNC),
    # A new version under a temporary name, renamed over the old one: `fsync` syncs the file before the rename;
    # `synced` also syncs the directory after it.
    "replace-none": Kept(),
    "replace-fsync": Kept(),
    "replace-synced": Kept(_DIRECTORY),
    # A new file; `fsync` and `synced` as above.
    "create-none": Kept(),
    "create-fsync": Kept(),
    "create-synced": Kept(_DIRECTORY),
    # One name more for a file, or one less; `synced` syncs the directory.
    "link-none": Kept(),
    "link-synced": Kept(_DIRECTORY),
    "unlink-none": Kept(),
    "unlink-synced": Kept(_DIRECTORY),
    # A file that is truncated, gets space, or gets a hole.
    "truncate-none": Kept(),
    "truncate-fsync": Kept(_FSYNC),
    "fallocate-none": Kept(),
    "fallocate-fsync": Kept(_FSYNC),
    "punch-none": Kept(),
    "punch-fsync": Kept(_FSYNC),
    # A record in a first file, then in a second: what the second has, the first must have.
    "pair-none": Kept(),
    "pair-fdatasync": Kept(_FDATASYNC, only_order=True),
}
WORDS = tuple(PATTERNS)
SILENT = tuple(word for word, kept in PATTERNS.items() if not kept.source)
