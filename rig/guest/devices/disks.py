"""Disks in guest RAM: null_blk with a volatile write cache for data, brd for what needs no cache.

brd advertises no volatile cache, so the block layer strips FLUSH before a target above it sees one. null_blk with
`cache_size` advertises a write-back cache and FUA; `require_write_cache` checks it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rig.contract.geometry import CHUNK_BYTES

# The disk of the root file system, a file of the host. Nothing may read it while a recording is made.
ROOT_DISK = "/dev/vda"
# The disk with the host's data: a recording to check, or more code.
RECORDING_DISK = os.environ.get("RIG_RECORDING", "/dev/vdb")
# include/uapi/linux/fs.h
_BLKFLSBUF = 0x1261
_READ_BYTES = 1 << 20
_NULL_BLK = Path("/sys/kernel/config/nullb")
_MODULES = Path("/run/modules")
_libc = ctypes.CDLL(None, use_errno=True)


def load_module(name: str, parameters: str = "") -> None:
    """Load a module from the initrd; raise OSError naming it."""
    image = (_MODULES / f"{name}.ko").read_bytes()
    if _libc.syscall(175, image, ctypes.c_ulong(len(image)), parameters.encode()):  # init_module(2)
        number = ctypes.get_errno()
        raise OSError(number, f"module {name}: {os.strerror(number)}")


def require_modules(names: Iterable[str]) -> None:
    """Load modules from the initrd unless the kernel has them; raise OSError naming one that does not load."""
    built_in = (_MODULES / "built-in").read_text().split()
    for name in names:
        # In /sys/module a dash is an underscore.
        if name not in built_in and not Path("/sys/module", name.replace("-", "_")).exists():
            load_module(name)


def forget(descriptor: int) -> None:
    """Drop the cache of an open block device.

    The last close would do that too, but a process forked in the meantime still has the device open.
    """
    fcntl.ioctl(descriptor, _BLKFLSBUF)


def unload_module(name: str) -> None:
    """Unload a module and free its memory; raise OSError naming it."""
    if _libc.syscall(176, name.encode(), os.O_NONBLOCK):  # delete_module(2)
        number = ctypes.get_errno()
        raise OSError(number, f"module {name}: {os.strerror(number)}")


def add_cached_disk(number: int, size_mib: int) -> str:
    """Add a zeroed disk with a volatile write cache and 512-byte sectors; return its node. Add number 0 first."""
    if number == 0:
        load_module("null_blk", "nr_devices=0")
    folder = _NULL_BLK / f"nullb{number}"
    folder.mkdir()
    attributes = {
        "size": size_mib,
        "blocksize": 512,
        "memory_backed": 1,
        "cache_size": size_mib,
        # One queue: two flushes in flight on different queues could be logged in the wrong order.
        "submit_queues": 1,
        "queue_mode": 2,
        "irqmode": 0,
        "power": 1,
    }
    for name, value in attributes.items():
        (folder / name).write_text(str(value))
    return f"/dev/{folder.name}"


def remove_cached_disks() -> None:
    """Remove all disks that were added, and free their memory."""
    for folder in sorted(_NULL_BLK.glob("nullb*")):
        (folder / "power").write_text("0")
        folder.rmdir()
    unload_module("null_blk")


def cycle_power(device: str) -> None:
    """Power a disk off and on, which loses the content of its cache. The disk must not be open."""
    power = _NULL_BLK / Path(device).name / "power"
    for value in ("0", "1"):
        power.write_text(value)


def require_write_cache(device: str) -> None:
    """Raise RuntimeError unless the device advertises a volatile write cache to the block layer."""
    path = Path("/sys/block", Path(device).name, "queue/write_cache")
    if (mode := path.read_text().strip()) != "write back":
        raise RuntimeError(f"{device} says {mode!r} in {path}: flushes would never reach it")


def sector_count(device: str) -> int:
    """Return the size of a device in sectors of 512 bytes."""
    return int(Path("/sys/block", Path(device).name, "size").read_text())


def request_counts(device: str) -> dict[str, int]:
    """Return completed reads, writes and flushes (fields 1, 5 and 16 of the kernel's block/stat)."""
    fields = _statistics(device)
    return {"reads": fields[0], "writes": fields[4], "flushes": fields[15]}


def written_bytes(device: str) -> int:
    """Return how much was written to a device (field 7 of the kernel's block/stat, which counts 512 bytes)."""
    return 512 * _statistics(device)[6]


def _statistics(device: str) -> list[int]:
    return [int(field) for field in Path("/sys/block", Path(device).name, "stat").read_text().split()]


def chunks_of(device: str, end_bytes: int = 1 << 62) -> Iterator[bytes]:
    """Yield the content of a device up to an end, in chunks of `CHUNK_BYTES`; the last may be shorter.

    Reads with O_DIRECT, past the page cache: this shows what the disk holds, and is ten times as fast under emulation.
    """
    buffer = mmap.mmap(-1, _READ_BYTES)
    source = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        while end_bytes and (size := os.readv(source, [buffer])):
            taken = min(size, end_bytes)
            for begin in range(0, taken, CHUNK_BYTES):
                yield buffer[begin : min(begin + CHUNK_BYTES, taken)]
            end_bytes -= taken
    finally:
        os.close(source)


def chunks_at(device: str, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield some chunks of a device with their numbers, read as `chunks_of` reads."""
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    source = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        for number in numbers:
            if os.preadv(source, [buffer], number * CHUNK_BYTES) != CHUNK_BYTES:
                raise OSError(f"{device} ends before chunk {number}")
            yield number, buffer[:]
    finally:
        os.close(source)


def settle(device: str) -> None:
    """Flush a disk twice, so that no earlier write can be lost or have an unknown order.

    A file system may note its mount by a FUA write of a block, and write that block again from the page cache. The log
    does not show in which order the two reached the disk, unless two FLUSHes are between them.
    """
    node = os.open(device, os.O_RDONLY)
    try:
        for _ in range(2):
            os.fsync(node)
    finally:
        os.close(node)
