"""Small experiments with Btrfs that need no database: they run as root in a guest, on two empty disks of its own.

Each returns figures. `cow` is a file as Btrfs makes it, `nocow` one in a directory with the attribute C, whose files
are made without copy on write and without checksums. Damage is done to the disk while nothing is mounted, at a place
found by its content, which is random and occurs once on each disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rig.filesystems import kernel
from rig.filesystems.attributes import set_nocow
from rig.filesystems.fiemap import extents

Figures = Mapping[str, int]

_BLOCK = 4096
_BLOCKS = 16
_READERS = 24
_LIMIT_S = 120
# include/uapi/linux/fs.h
_FICLONE, _FIDEDUPERANGE = 0x40049409, 0xC0189436
_SEARCH_BYTES = 1 << 20
# Enough of a block to recognise it.
_NEEDLE_BYTES = 64
_SEEDS = {"cow": 6, "nocow": 7}


def overwrite(disks: Sequence[str], folder: str) -> Figures:
    """Overwrite a file and look where it lies; for `nocow` also twice after a snapshot."""
    figures = {}
    with _mount(disks[:1], folder) as root:
        for kind, directory in _directories(root).items():
            path = f"{directory}/file"
            _write(path, 1)
            first = _places(path)
            _write(path, 2)
            second = _places(path)
            _tool("btrfs", "subvolume", "snapshot", root, f"{root}/snapshot-{kind}")
            _write(path, 3)
            third = _places(path)
            _write(path, 4)
            figures[f"moved_{kind}"] = int(first != second)
            figures[f"moved_by_snapshot_{kind}"] = int(second != third)
            figures[f"moved_again_{kind}"] = int(third != _places(path))
    return figures


def share(disks: Sequence[str], folder: str) -> Figures:
    """Clone and deduplicate files of both kinds into files of both kinds; a figure is 0 or the number of the error."""
    figures = {}
    with _mount(disks[:1], folder) as root:
        directories = _directories(root)
        for source in directories:
            for target in directories:
                original, other = (f"{directories[kind]}/{source}-{target}" for kind in (source, target))
                other += "-target"
                _write(original, 5)
                figures[f"clone_{source}_{target}"] = _clone(original, other)
                Path(other).unlink()
                _write(other, 5)
                figures[f"dedupe_{source}_{target}"] = _deduplicate(original, other)
    return figures


def rot(disks: Sequence[str], folder: str) -> Figures:
    """Flip a byte in each block of both files on the disk, and read them: count errors and wrong blocks."""
    _make_files(disks[:1], folder)
    figures = {f"flipped_{kind}": count for kind, count in _flip(disks[0], _SEEDS).items()}
    with _mount(disks[:1], folder, is_new=False) as root:
        for kind, seed in _SEEDS.items():
            figures[f"errors_{kind}"], figures[f"wrong_{kind}"] = _read_errors(f"{root}/{kind}/file", seed)
    return {**figures, "blocks": _BLOCKS}


def mirror(disks: Sequence[str], folder: str) -> Figures:
    """Flip a byte in each block of both files on one of two mirrors, and read them from many processes; then scrub."""
    _make_files(disks, folder, "-d", "raid1", "-m", "raid1")
    figures = {f"flipped_{kind}": count for kind, count in _flip(disks[0], _SEEDS).items()}
    with _mount(disks, folder, is_new=False) as root:
        for kind, seed in _SEEDS.items():
            path = f"{root}/{kind}/file"
            wrong = [_wrong_in_child(path, seed) for _ in range(_READERS)]
            figures[f"wrong_{kind}"] = sum(map(bool, wrong))
        _tool("btrfs", "scrub", "start", "-B", root, check=False)
        path = f"{root}/nocow/file"
        figures["wrong_after_scrub"] = sum(bool(_wrong_in_child(path, _SEEDS["nocow"])) for _ in range(_READERS))
    return {**figures, "readers": _READERS}


PROBES: Mapping[str, Callable[[Sequence[str], str], Figures]] = {
    probe.__name__: probe for probe in (mirror, overwrite, rot, share)
}


@contextmanager
def _mount(disks: Sequence[str], folder: str, *options: str, is_new: bool = True) -> Iterator[str]:
    """Make the file system unless it is there, mount it, and unmount it at the end."""
    if is_new:
        _tool("mkfs.btrfs", "-q", "-f", "--nodiscard", *options, *disks)
    for disk in disks:
        _tool("btrfs", "device", "scan", disk)
    kernel.mount(disks[0], "btrfs", "nodiscard", folder)
    try:
        yield folder
    finally:
        kernel.unmount(folder)


def _make_files(disks: Sequence[str], folder: str, *options: str) -> None:
    with _mount(disks, folder, *options) as root:
        for kind, directory in _directories(root).items():
            _write(f"{directory}/file", _SEEDS[kind])


def _directories(root: str) -> dict[str, str]:
    directories = {kind: f"{root}/{kind}" for kind in ("cow", "nocow")}
    for directory in directories.values():
        Path(directory).mkdir()
    set_nocow(directories["nocow"])
    return directories


def _content(seed: int) -> bytes:
    return random.Random(seed).randbytes(_BLOCK * _BLOCKS)


def _write(path: str, seed: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, _content(seed), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _places(path: str) -> list[tuple[int, int]]:
    """Return where a file lies, as (address, length) of its extents."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [(extent.device_offset, extent.length) for extent in extents(descriptor, synced=True)]
    finally:
        os.close(descriptor)


def _clone(source: str, target: str) -> int:
    original, other = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.ioctl(other, _FICLONE, original)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.close(original)
        os.close(other)
    return 0


def _deduplicate(source: str, target: str) -> int:
    original, other = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR)
    request = bytearray(struct.pack("=QQHHLqQQlL", 0, _BLOCK * _BLOCKS, 1, 0, 0, other, 0, 0, 0, 0))
    try:
        fcntl.ioctl(original, _FIDEDUPERANGE, request)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.close(original)
        os.close(other)
    # The status is 0, a negative error, or 1 if the contents differ.
    return int(abs(struct.unpack_from("=l", request, 48)[0]))


def _flip(disk: str, seeds: Mapping[str, int]) -> dict[str, int]:
    """Flip a byte in the middle of each block of files on a disk; return how many of each were found."""
    flipped, empty = dict.fromkeys(seeds, 0), bytes(_SEARCH_BYTES)
    needles = [
        (kind, _content(seed)[begin : begin + _NEEDLE_BYTES])
        for kind, seed in seeds.items()
        for begin in range(0, _BLOCK * _BLOCKS, _BLOCK)
    ]
    descriptor = os.open(disk, os.O_RDWR)
    try:
        for begin in range(0, os.lseek(descriptor, 0, os.SEEK_END), _SEARCH_BYTES):
            chunk = os.pread(descriptor, _SEARCH_BYTES, begin)
            if chunk == empty:
                continue
            for kind, needle in needles:
                if (place := chunk.find(needle)) >= 0:
                    middle = place + _BLOCK // 2
                    os.pwrite(descriptor, bytes([chunk[middle] ^ 1]), begin + middle)
                    flipped[kind] += 1
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return flipped


def _read_errors(path: str, seed: int) -> tuple[int, int]:
    """Return how many blocks of a file cannot be read, and how many are wrong."""
    content, errors, wrong = _content(seed), 0, 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        for begin in range(0, len(content), _BLOCK):
            try:
                wrong += os.pread(descriptor, _BLOCK, begin) != content[begin : begin + _BLOCK]
            except OSError:
                errors += 1
    finally:
        os.close(descriptor)
    return errors, wrong


def _wrong_in_child(path: str, seed: int) -> int:
    """Return how many blocks another process cannot read or reads wrong; the process decides which mirror is read."""
    child = os.fork()
    if not child:
        status = 99
        try:
            status = sum(_read_errors(path, seed))
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _tool(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True, text=True, timeout=_LIMIT_S)
