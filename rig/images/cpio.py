"""Write cpio archives in the `newc` format, which the kernel unpacks as an initrd.

The format is described in the kernel's Documentation/driver-api/early-userspace. The kernel unpacks concatenated
archives one after the other into the same tree, so the agent's code is a second archive.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping

_DIRECTORY = stat.S_IFDIR | 0o755
_TRAILER = "TRAILER!!!"


def archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Pack `path -> (content, permission bits)` and the parent directories; the same files give the same bytes."""
    directories = {path.rsplit("/", depth)[0] for path in files for depth in range(1, path.count("/") + 1)}
    parts = []
    for number, path in enumerate(sorted(directories | files.keys()), start=1):
        if path in files:
            content, permissions = files[path]
            parts.append(_entry(number, path, stat.S_IFREG | permissions, content))
        else:
            parts.append(_entry(number, path, _DIRECTORY, b""))
    parts.append(_entry(0, _TRAILER, 0, b""))
    return _pad(b"".join(parts))


def _entry(number: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _pad(header + name) + _pad(content)


def _pad(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 4) * 4, b"\0")
