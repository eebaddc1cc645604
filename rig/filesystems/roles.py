"""What a block of a disk is to its file system, where that is known: an optional part of a file system.

Without it a block has a file and an offset, or no name at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from rig.contract.places import FilePlaces

# Reads a range of a device: offset and length in bytes.
Read = Callable[[int, int], bytes]


class ChangeKind(StrEnum):
    """What a block changes about a file."""

    # The weightiest first.
    NAME_REMOVED = "removes the name"
    REMOVED = "frees"
    NAME_ADDED = "adds the name"
    MADE = "makes"
    SIZE = "changes the size of"
    BLOCKS = "changes the blocks of"
    TIMES = "changes the times of"
    DATA = "holds data of"


@dataclass(frozen=True)
class FileChange:
    """What a block changes about a file; `path` is relative to the mount point."""

    kind: ChangeKind
    path: str
    detail: str = ""
    # The size that the file gets; -1 for another kind of change.
    size_bytes: int = -1

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class BlockRole:
    """What a block is, and what follows for files if it lands; a commit block stands for all that it commits."""

    what: str
    changes: tuple[FileChange, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: it {'; it '.join(map(str, self.changes))}" if self.changes else self.what


@runtime_checkable
class BlockRoles(Protocol):
    """What a file system offers if it knows what its blocks are."""

    def role_of(self, offset_bytes: int, data: bytes, read: Read, files: Sequence[FilePlaces]) -> BlockRole | None:
        """Return what a write to the device is, None for one that is only a file's data.

        `read` reads the device before the write, with everything landed that was written around it. `files` has every
        file that is known, from several states of the disk.
        """
