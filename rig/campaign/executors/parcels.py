"""Files that travel to the workers of a cluster: images, templates and unpacked recordings, by digest.

A parcel is a folder, or one file. Its digest covers names, contents and which files are programs, and is the same on
every file system. A host keeps what it received in `parcels/` of its cache, so each parcel travels to it once. It
travels in parts of a few MiB, compressed and without holes. A folder gets the name of the digest only once it is whole
and its digest agrees, so a sender that was killed leaves nothing that could be used. Parcels in use are locked, and
the ones used last are kept besides.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import zstandard

from rig.contract.errors import HostError
from rig.host.cache import cache_folder
from rig.host.files import require_space
from rig.machines.memoryfile import data_ranges

# What is all zero in a file is left out in pieces of this size.
_WINDOW_BYTES = 1 << 16
# Compressed bytes of one message. Dask warns from 10 MB on.
_MESSAGE_BYTES = 4 << 20
# What the parcels that were used last may take.
_KEPT_BYTES = 8 << 30
_UNFINISHED = "unfinished"
_FOLDER, _FILE = "parcels", "file"
# The unit of `st_blocks`, see stat(2).
_BLOCK_BYTES = 512


@dataclass(frozen=True)
class Parcel:
    """A folder or a file under its digest, with the mode of the folder and its size without holes."""

    name: str
    digest: str
    mode: int
    stored_bytes: int

    def within(self, cache: Path) -> Path:
        """Return where a cache holds the folder or file."""
        return cache / _FOLDER / self.digest / self.name


@dataclass(frozen=True)
class Part:
    """A piece of one file; `name` is its path in the folder, `.` if the parcel is a file."""

    name: str
    is_program: bool
    size_bytes: int
    offset_bytes: int
    packed: bytes


class LackError(Exception):
    """A host no longer has a parcel, or never had it."""


def parcel_of(path: Path) -> Parcel:
    """Return the parcel of a folder, which keeps its name, or of a file, whose name does not matter."""
    name = path.name if path.is_dir() else _FILE
    digest, stored_bytes = _digest(path, name)
    return Parcel(name, digest, path.stat().st_mode & 0o777, stored_bytes)


def messages(path: Path) -> Iterator[list[Part]]:
    """Yield the parts of a folder or file, as many at a time as fit into a message."""
    batch: list[Part] = []
    size = 0
    packer = zstandard.ZstdCompressor(level=1)
    for file in _files(path):
        facts = file.stat()
        about = (str(file.relative_to(path)), bool(facts.st_mode & 0o100), facts.st_size)
        # An empty part makes the file, which may hold nothing but zeros.
        batch.append(Part(*about, 0, b""))
        for offset, window in _windows(file):
            batch.append(Part(*about, offset, packer.compress(window)))
            size += len(batch[-1].packed)
            if size >= _MESSAGE_BYTES:
                yield batch
                batch, size = [], 0
    yield batch


def has(parcel: Parcel) -> bool:
    """Return whether this host has a parcel."""
    return parcel.within(cache_folder()).exists()


def receive(parcel: Parcel, sender: str, parts: Sequence[Part]) -> None:
    """Write parts of a parcel; raise HostError if there is no room. Parcels of two senders do not mix."""
    folder = _draft(parcel, sender)
    if not folder.exists():
        require_space(folder, parcel.stored_bytes, f"{parcel.name}, which the worker receives,")
        folder.mkdir(parents=True)
    root = folder / parcel.name
    for part in parts:
        path = root / part.name
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o755 if part.is_program else 0o644), "r+b") as file:
            file.truncate(part.size_bytes)
            if part.packed:
                file.seek(part.offset_bytes)
                file.write(zstandard.ZstdDecompressor().decompress(part.packed, max_output_size=_WINDOW_BYTES))


def finish(parcel: Parcel, sender: str) -> None:
    """Give a received parcel its name; raise HostError if it is not what its digest says."""
    folder, target = _draft(parcel, sender), cache_folder() / _FOLDER / parcel.digest
    if (digest := _digest(folder / parcel.name, parcel.name)[0]) != parcel.digest:
        shutil.rmtree(folder)
        raise HostError(f"{parcel.name} arrived damaged: its digest is {digest}, not {parcel.digest}")
    (folder / parcel.name).chmod(parcel.mode)
    try:
        folder.rename(target)
    except OSError:  # another sender was faster
        shutil.rmtree(folder)
        if not has(parcel):
            raise
    with hold(parcel):
        _prune()


@contextmanager
def hold(parcel: Parcel) -> Iterator[Path]:
    """Keep a parcel for the length of a block, and give its place; raise LackError if this host does not have it."""
    folder = cache_folder() / _FOLDER / parcel.digest
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise LackError(parcel.digest) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not has(parcel):  # removed while we waited for the lock
            raise LackError(parcel.digest)
        os.utime(descriptor)
        yield folder / parcel.name
    finally:
        os.close(descriptor)


def _prune() -> None:
    """Remove the parcels that were not used for longest, and what was never finished, once they take too much."""
    left_bytes = _KEPT_BYTES
    with suppress(FileNotFoundError):  # another process prunes too
        for folder in sorted((cache_folder() / _FOLDER).iterdir(), key=lambda path: -path.stat().st_mtime):
            left_bytes -= sum(file.stat().st_blocks for file in _files(folder)) * _BLOCK_BYTES
            if left_bytes < 0:
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def _draft(parcel: Parcel, sender: str) -> Path:
    return cache_folder() / _FOLDER / f"{_UNFINISHED}-{parcel.digest}-{sender}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _digest(path: Path, name: str) -> tuple[str, int]:
    """Return the digest of a folder or file under a name, and how many bytes it takes without holes."""
    hasher = hashlib.blake2b(f"{name}\n".encode(), digest_size=16)
    count = 0
    for file in _files(path):
        facts = file.stat()
        hasher.update(f"{file.relative_to(path)}\n{bool(facts.st_mode & 0o100)} {facts.st_size}\n".encode())
        for offset, window in _windows(file):
            hasher.update(b"%d " % offset)
            hasher.update(window)
            count += len(window)
    return hasher.hexdigest(), count


def _windows(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of each piece of a file that is not all zero, whatever its file system calls a hole."""
    with open(path, "rb", buffering=0) as file:
        end = 0
        for first, last in data_ranges(file):
            for offset in range(max(end, first // _WINDOW_BYTES * _WINDOW_BYTES), last, _WINDOW_BYTES):
                end = offset + _WINDOW_BYTES
                window = os.pread(file.fileno(), _WINDOW_BYTES, offset)
                if window.count(0) != len(window):
                    yield offset, window
