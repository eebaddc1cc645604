"""Where files are on their disk, as a guest reports them: for each file its name, its inode and its extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FilePlaces:
    """One file or directory below the mount point, in a state of the disk."""

    # Relative to the mount point, which is `.`.
    path: str
    inode: int
    is_directory: bool
    size_bytes: int
    # (offset in the file, offset on the device, length) in bytes, for what the device holds verbatim.
    extents: Sequence[tuple[int, int, int]]

    def offset_of(self, device_offset_bytes: int) -> int | None:
        """Return where a byte of the device is in the file, clipped to no size; None if it is not the file's."""
        for file_offset, device_offset, length in self.extents:
            if device_offset <= device_offset_bytes < device_offset + length:
                return file_offset + device_offset_bytes - device_offset
        return None
