"""Files that are written durably or not at all, and whether a folder may be written and has room."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from pathlib import Path

from rig.contract.errors import HostError, StoreError

_MIB = 1 << 20


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write at `path`, which need not exist yet."""
    facts = os.statvfs(_existing(path))
    return facts.f_bavail * facts.f_frsize


def require_writable(folder: Path, remedy: str) -> None:
    """Raise HostError, with the remedy, unless this user may write in `folder` or could create it."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            pass
    except OSError as error:
        raise HostError(f"nothing can be written in {folder}: {error.strerror}; {remedy}") from None


def require_space(path: Path, needed_bytes: int, what: str) -> None:
    """Raise HostError unless `needed_bytes` are free at `path`, before anything is written; `what` names their use."""
    available_bytes = free_bytes(path)
    if available_bytes >= needed_bytes:
        return
    raise HostError(
        f"{what} needs {_mib(needed_bytes)} in {path}, which has {_mib(available_bytes)} free; free "
        f"{_mib(needed_bytes - available_bytes)} there, or choose a directory on another disk. Nothing was written."
    )


def atomic_write(path: Path, data: bytes) -> None:
    """Write `data` to `path` durably: afterwards the file holds either all of it or its old content.

    Write it to a temporary name in the same directory, sync and rename it, and sync the directory.
    Raise StoreError if that fails; the message says what the file holds now.
    """
    kept = "its earlier content is unchanged" if path.exists() else "it was not created"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            _write_synced(temporary, data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        kept = "it has its new content, which may not survive a power cut yet"
        _sync_directory(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({len(data)} bytes): {error.strerror}; {kept}. {_remedy(error, path)}"
        ) from error


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists and is accessible."""
    existing = path.absolute()
    # Up to Python 3.13 Path.exists() raises for a path that is not accessible.
    while not os.path.exists(existing):  # noqa: PTH110
        existing = existing.parent
    return existing


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes // _MIB)} MiB"


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remedy(error: OSError, path: Path) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"The disk is full: free some space in {path.parent}, then run the same command again."
    if error.errno == errno.EFBIG:
        return "The limit on the size of files is too low: raise it (ulimit -f), then run the same command again."
    return f"Check that {path.parent} is a directory to which this user may write."
