"""Btrfs as btrfs-progs makes it by default: metadata twice, data once, crc32c.

By default it copies on write, with a checksum of all data. `nodatacow` overwrites data in place and keeps no checksums
of it; so do files with the attribute C, which `nocow` gives to the directory of the database. An fsync writes what it
needs to a log tree; all else waits for a commit, every 30 s.

`raid1` keeps all data and metadata on each of two disks. By its checksums it knows which copy is right, returns that
copy, and writes it over the wrong one. If one of the disks no longer has a sound superblock, the file system is mounted
without that disk (`degraded`), as an administrator would do.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rig.filesystems import kernel
from rig.filesystems.attributes import NOCOW, below, set_nocow
from rig.filesystems.checked import CheckedFileSystem, one_line, run

_UUID = "12345678-1234-1234-1234-123456789abc"
_DEVICE_UUID = "87654321-4321-4321-4321-cba987654321"
# Lines of `btrfs check` that report progress and counts, not findings.
_PROGRESS = re.compile(
    r"\[\d/\d\]|Opening filesystem|Checking filesystem|UUID:|total |btree space|file data|\s*referenced|found "
)
# The lines of dump-super that say how it was made.
_MADE = ("csum_type", "total_bytes", "sectorsize", "nodesize", "num_devices", "compat_ro_flags", "incompat_flags")
# KERN_WARNING, the level at which a wrong checksum is logged.
_WARNING_LEVEL = 4
_DEVICES = Path("/sys/fs/btrfs", _UUID, "devinfo")
# The recorded disk takes discards, so the default would be discard=async.
_NO_DISCARDS = "nodiscard"
# include/uapi/linux/btrfs.h: make known a disk of several, and forget all disks that are not mounted. Otherwise what
# the kernel knows about the disks of one crash state would count for the disks of the next.
_CONTROL = "/dev/btrfs-control"
_SCAN, _FORGET = 0x50009404, 0x50009405
_ARGUMENTS = struct.Struct("q4088s")
# fs/btrfs/accessors.h, struct btrfs_super_block: the checksum covers what follows it.
_SUPERBLOCK_AT, _SUPERBLOCK_BYTES = 64 << 10, 4096
_CHECKSUM_BYTES, _MAGIC_AT, _MAGIC = 32, 64, b"_BHRfS_M"


def _crc32c_table() -> Iterator[int]:
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
        yield register


_CRC32C = tuple(_crc32c_table())


@dataclass(frozen=True)
class Btrfs(CheckedFileSystem):
    """The file system with its mount options."""

    CHECKER: ClassVar[tuple[str, ...]] = ("btrfs", "check")
    # It does not read the data.
    LOOKS: ClassVar[tuple[str, ...]] = ("--readonly",)
    REPAIRS: ClassVar[tuple[str, ...]] = ("--repair", "--force")
    ANSWERS: ClassVar[str] = "y\n"

    kernel_type: str = "btrfs"
    mount_options: str = _NO_DISCARDS
    reads_back: tuple[str, ...] = ("space_cache=v2",)
    # With flushoncommit a commit has everything written before it; without an fsync only a commit reaches the disk.
    keeps_order: bool = False
    modules: tuple[str, ...] = ("libcrc32c", "xor", "raid6_pq", "btrfs")
    # By default metadata is stored twice; a smaller disk has no room for both copies (109 MiB) and for data.
    disk_mib_min: int = 128
    options_by_fault: Mapping[str, str] = field(default_factory=lambda: {"discard": "discard=sync"})
    # FIEMAP gives Btrfs's own logical addresses, which chunks map to the device.
    maps_files: bool = False

    def make(self, device: str) -> None:
        """Make the file system."""
        run("mkfs.btrfs", "-q", "-f", "--nodiscard", "-U", _UUID, "--device-uuid", _DEVICE_UUID, device)

    def made_as(self, device: str) -> str:
        """Return the format, read from the superblock."""
        return superblock(run("btrfs", "inspect-internal", "dump-super", device))

    def complaints(self, output: str) -> str:
        """Return what `btrfs check` says without its progress and its counts."""
        return one_line([line for line in output.splitlines() if not _PROGRESS.match(line)])

    def error_count(self, device: str) -> int:
        """Return the errors that the driver has counted, and the warnings in the kernel's messages."""
        return error_count((_DEVICES / "1/error_stats").read_text()) + warnings(kernel.messages(), device)


@dataclass(frozen=True)
class NocowBtrfs(Btrfs):
    """The same with the attribute C (`chattr +C`) on the directory of the database."""

    attributes: str = NOCOW

    def set_attributes(self, directory: str) -> None:
        """Set the attribute; files that are made there later have it too."""
        set_nocow(directory)

    def attributes_below(self, directory: str) -> str:
        """Return what a directory and everything below it have, read back from the driver."""
        return below(directory)


@dataclass(frozen=True)
class MirroredBtrfs(Btrfs):
    """The same on two disks, with a copy of all data and metadata on each."""

    disk_mib_min: int = 2 * Btrfs.disk_mib_min
    knows_copies: bool = True

    @property
    def second_disk_mib(self) -> int:
        """Return half of both disks."""
        return self.disk_mib_min // 2

    def make_on_two(self, first: str, second: str, first_mib: int) -> None:  # noqa: ARG002 - it takes the whole disks
        """Make the file system."""
        run("mkfs.btrfs", "-q", "-f", "--nodiscard", "-d", "raid1", "-m", "raid1", "-U", _UUID, first, second)

    @contextmanager
    def unite(self, first: str, second: str) -> Iterator[tuple[str, str]]:
        """Make both disks known; give one of them, and `degraded` if the other is no longer part of the file system."""
        _forget()
        try:
            # The kernel makes a disk known without a look at the checksum; the mount then fails if it is wrong.
            known = [disk for disk in (first, second) if _is_sound(disk) and _scan(disk)]
            yield (known or [first])[0], "" if len(known) == len((first, second)) else "degraded"
        finally:
            _forget()

    def mounted_with(self, device: str) -> str:  # noqa: ARG002 - the kernel lists either of the two disks
        """Return all mount options, the default ones too."""
        mounts = kernel.mounts()
        (listed,) = (fields[0] for line in mounts.splitlines() if (fields := line.split(" "))[2] == self.kernel_type)
        return kernel.options_of(mounts, listed)

    def damage_on_two(self, device: str, second: str) -> str:  # noqa: ARG002 - it finds the second disk by its UUID
        """Return what `btrfs check` complains about."""
        return self.damage(device)

    def error_count(self, device: str) -> int:  # noqa: ARG002 - messages name either of the two disks
        """Return the errors counted of both disks, and the warnings in the kernel's messages."""
        counts = sum(error_count(path.read_text()) for path in _DEVICES.glob("*/error_stats"))
        return counts + warnings(kernel.messages())


def _variant(word: str, options: str, *reads_back: str, keeps_order: bool = False) -> Btrfs:
    return Btrfs(
        f"btrfs.{word}", mount_options=f"{_NO_DISCARDS},{options}", reads_back=("space_cache=v2", *reads_back),
        keeps_order=keeps_order,
    )  # fmt: skip


VARIANTS = (
    Btrfs("btrfs"),
    _variant("nodatacow", "nodatacow", "nodatasum", "nodatacow"),
    NocowBtrfs("btrfs.nocow"),
    MirroredBtrfs("btrfs.raid1"),
    _variant("zstd", "compress-force=zstd", "compress-force=zstd:3"),
    _variant("flushoncommit", "flushoncommit", "flushoncommit", keeps_order=True),
)


def superblock(output: str) -> str:
    """Return the lines of dump-super that say how it was made, with the names of their flags, in one line."""
    matches = ((name, re.search(rf"^{name}[ \t]+(.*(?:\n[ \t].*)*)", output, re.MULTILINE)) for name in _MADE)
    return "; ".join(f"{name}: {' '.join(match[1].split())}" for name, match in matches if match)


def is_sound(superblock: bytes) -> bool:
    """Return whether the block of a superblock is one, with a right checksum."""
    (stored,) = struct.unpack_from("<I", superblock)
    return superblock[_MAGIC_AT:].startswith(_MAGIC) and stored == crc32c(superblock[_CHECKSUM_BYTES:])


def crc32c(data: bytes) -> int:
    """Return the checksum of Castagnoli, which the standard library does not have."""
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _CRC32C[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def error_count(error_stats: str) -> int:
    """Return the sum of the errors in the text of an `error_stats`."""
    return sum(int(line.split()[1]) for line in error_stats.splitlines())


def warnings(messages: str, device: str = "") -> int:
    """Return how many of the kernel's messages are warnings or worse of Btrfs on a device, or on any."""
    name = re.escape(device.rpartition("/")[2]) or r"[^ )]+"
    return len(kernel.messages_like(messages, re.compile(rf"BTRFS \w+ \(device {name}[ )]"), _WARNING_LEVEL))


def _is_sound(disk: str) -> bool:
    """Return whether a disk has a superblock with a right checksum."""
    with open(disk, "rb") as file:
        file.seek(_SUPERBLOCK_AT)
        return is_sound(file.read(_SUPERBLOCK_BYTES))


def _scan(disk: str) -> bool:
    """Make a disk known; return whether it is part of a file system."""
    with suppress(OSError):
        _control(_SCAN, disk)
        return True
    return False


def _forget() -> None:
    with suppress(FileNotFoundError):  # none was ever known
        _control(_FORGET)


def _control(request: int, disk: str = "") -> None:
    node = os.open(_CONTROL, os.O_RDWR)
    try:
        # Only what can be changed may be as long as this.
        fcntl.ioctl(node, request, bytearray(_ARGUMENTS.pack(0, disk.encode())))
    finally:
        os.close(node)
