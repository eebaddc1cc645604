"""Files in memory that a machine inherits; they have no name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def memory_file(name: str, content: bytes = b"", *, size_bytes: int = 0) -> Iterator[BinaryIO]:
    """Hold a file of at least `size_bytes` for the length of a block; it vanishes when the last process closes it."""
    with open(os.memfd_create(f"rig-{name}"), "r+b", buffering=0) as file:
        file.write(content)
        file.truncate(max(size_bytes, len(content)))
        yield file


def by_descriptor(file: BinaryIO) -> Path:
    """Return a path that reopens a file, in this process or in one that inherits the descriptor."""
    return Path(f"/proc/self/fd/{file.fileno()}")
