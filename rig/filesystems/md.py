"""Linux md RAID1 as mdadm makes it, with a superblock of format 1.2 on each of two disks and without a bitmap.

md has no checksums of data, so it does not know which of two copies is right. Its superblocks say whether the array is
clean: it is dirty from before the first write until 0.2 s have passed without a write. A dirty array reads the first
disk, while a resync copies this disk over the second. A clean array reads either disk.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULES = ("md-mod", "raid1")
_NODE = "/dev/md0"
_SYSFS = Path("/sys/block/md0/md")
_UUID = "12345678:12341234:12341234:56789abc"
_DISK_UUIDS = ("87654321-4321-4321-4321-cba987654321", "87654321-4321-4321-4321-cba987654322")
_LIMIT_S = 60
# include/uapi/linux/raid/md_u.h
_STOP_ARRAY = 0x932
# include/uapi/linux/raid/md_p.h, struct mdp_superblock_1: a fixed part, then two bytes for each possible disk.
_SUPERBLOCK_AT, _SUPERBLOCK_BYTES, _FIXED_BYTES = 4096, 4096, 256
_DATA_AT, _DISK_UUID_AT, _RESYNC_AT, _CHECKSUM_AT, _DISKS_MAX_AT = 128, 168, 208, 216, 220
_MAGIC = bytes.fromhex("fc4e2ba9")
_SECTOR_BYTES = 512
# The files in sysfs that say how the array was made.
_MADE = ("level", "raid_disks", "metadata_version", "bitmap/location")


def make(first: str, second: str) -> None:
    """Make an array of two disks that hold the same, such as empty ones; it is not assembled afterwards."""
    kind = ("--level=1", "--raid-devices=2", "--metadata=1.2", "--bitmap=none", "--assume-clean")
    name = (f"--uuid={_UUID}", "--name=rig", "--homehost=none")
    made = _mdadm("--create", _NODE, "--run", *kind, *name, first, second)
    if made.returncode:
        raise OSError(f"mdadm makes no array of {first} and {second}: {made.stderr}")
    _stop()
    # mdadm gives each disk a random UUID, and has no option for another.
    for disk, name_of_disk in zip((first, second), _DISK_UUIDS, strict=True):
        _change(disk, _DISK_UUID_AT, uuid.UUID(name_of_disk).bytes)


@contextmanager
def assemble(first: str, second: str) -> Iterator[str]:
    """Assemble the array for the length of a block; give its node.

    A disk whose superblock is not sound is left out. If neither is sound, give a node from which nothing can be
    mounted.
    """
    if not any(is_sound(_superblock(disk)) for disk in (first, second)):
        yield first
        return
    # With --run an array starts although it has lost a disk since it was last used.
    started = _mdadm("--assemble", _NODE, "--run", f"--uuid={_UUID}", first, second)
    if started.returncode:
        raise OSError(f"mdadm does not assemble {first} and {second}: {started.stderr}")
    try:
        yield _NODE
    finally:
        _stop()


def made_as() -> str:
    """Return how the assembled array was made."""
    return "; ".join(f"{name}: {(_SYSFS / name).read_text().strip()}" for name in _MADE)


def mark_dirty(disk: str) -> None:
    """Have the superblock of a disk say what it says while the array is written to. The array is not assembled."""
    _change(disk, _RESYNC_AT, bytes(8))


def data_begins_at(disk: str) -> int:
    """Return the byte of a disk at which the data of the array begins."""
    return _SECTOR_BYTES * int.from_bytes(_superblock(disk)[_DATA_AT : _DATA_AT + 8], "little")


def wait_until_synced(limit_s: float) -> None:
    """Wait until the resync of the assembled array has ended; raise TimeoutError at the limit."""
    until_s = time.monotonic() + limit_s
    while (_SYSFS / "sync_action").read_text().strip() != "idle":
        if time.monotonic() > until_s:
            done = (_SYSFS / "sync_completed").read_text().strip()
            raise TimeoutError(f"{_NODE} is being resynced for more than {limit_s} s: {done} sectors")
        time.sleep(0.05)


def is_sound(superblock: bytes) -> bool:
    """Return whether the block of a superblock is one, with a right checksum."""
    if not superblock.startswith(_MAGIC) or _checked_bytes(superblock) > len(superblock):
        return False
    return struct.unpack_from("<I", superblock, _CHECKSUM_AT) == (checksum(superblock),)


def checksum(superblock: bytes) -> int:
    """Return the checksum of a superblock, as calc_sb_1_csum of drivers/md/md.c computes it."""
    size = _checked_bytes(superblock)
    words = struct.unpack_from(f"<{size // 4}I", superblock)
    total = sum(words) - words[_CHECKSUM_AT // 4]
    if size % 4:
        total += int.from_bytes(superblock[size - 2 : size], "little")
    return int((total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF)


def _checked_bytes(superblock: bytes) -> int:
    return _FIXED_BYTES + 2 * int.from_bytes(superblock[_DISKS_MAX_AT : _DISKS_MAX_AT + 4], "little")


def _superblock(disk: str) -> bytes:
    with open(disk, "rb") as file:
        file.seek(_SUPERBLOCK_AT)
        return file.read(_SUPERBLOCK_BYTES)


def _change(disk: str, at: int, value: bytes) -> None:
    """Change a superblock, and its checksum with it."""
    block = bytearray(_superblock(disk))
    block[at : at + len(value)] = value
    struct.pack_into("<I", block, _CHECKSUM_AT, checksum(bytes(block)))
    with open(disk, "r+b") as file:
        file.seek(_SUPERBLOCK_AT)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())


def _stop() -> None:
    node = os.open(_NODE, os.O_RDWR)
    try:
        fcntl.ioctl(node, _STOP_ARRAY)
    finally:
        os.close(node)


def _mdadm(*words: str) -> subprocess.CompletedProcess[str]:
    # No udev runs here that it could wait for.
    environment = {**os.environ, "MDADM_NO_UDEV": "1"}
    return subprocess.run(
        ["mdadm", *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=environment
    )
