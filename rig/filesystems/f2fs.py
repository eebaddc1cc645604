"""f2fs as f2fs-tools makes it by default, with the three ways of fsync that its driver has.

f2fs writes to logs, and makes a checkpoint of everything about once a minute. An fsync writes only the data of the file
and the nodes that say where it is; after a crash the mount reads these nodes from the end of the log, puts the file
back in place, and its name too, if the file is new. `fsync_mode` (Documentation/filesystems/f2fs.rst) says how much
that costs: `posix` is the default; `strict` orders the nodes after the data, and makes a checkpoint where names changed
in the directory of a new file; `nobarrier` does not flush the disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rig.contract.faultspecs import CACHE_LOSING_FAULTS
from rig.filesystems import kernel
from rig.filesystems.checked import CheckedFileSystem, one_line, run

_UUID = "12345678-1234-1234-1234-123456789abc"
# How fsck.f2fs marks what is wrong, among lines about everything that it checks.
_COMPLAINT = re.compile(r"\[(?:ASSERT|FIX)\]|\[Fail\]|\s*Error:")
# The lines of dump.f2fs that say how it was made.
_MADE = ("superblock features", "Segments per section", "Sections per zone", "total FS sectors")
# KERN_ERR. A mount after a crash may warn: a checkpoint that was being written at the cut has a wrong checksum, so the
# checkpoint before it counts.
_ERROR_LEVEL = 3
# SBI_NEED_FSCK of fs/f2fs/f2fs.h: the driver has found something that only a check can repair.
_NEEDS_CHECK = 1 << 2
# The recorded disk takes discards. Without this option they would be sent some seconds after a checkpoint.
_NO_DISCARDS = "nodiscard"
_NO_BARRIERS = dict.fromkeys(CACHE_LOSING_FAULTS, "its fsync does not flush the disk (fsync_mode=nobarrier)")


@dataclass(frozen=True)
class F2fs(CheckedFileSystem):
    """The file system with its mount options."""

    CHECKER: ClassVar[tuple[str, ...]] = ("fsck.f2fs",)
    # It does not read the data.
    LOOKS: ClassVar[tuple[str, ...]] = ("--dry-run",)
    REPAIRS: ClassVar[tuple[str, ...]] = ("-f", "-y")

    kernel_type: str = "f2fs"
    # The driver asks for the checksum by name.
    modules: tuple[str, ...] = ("crc32_generic", "lz4_compress", "lz4hc_compress", "f2fs")
    kernel: str = "generic"
    # A log needs room: mkfs.f2fs sets aside 95 % of the smallest possible disk, 44 MiB, and 25 % of this one.
    disk_mib_min: int = 128

    def make(self, device: str) -> None:
        """Make the file system; the number of its first checkpoint is not random."""
        run("mkfs.f2fs", "-q", "-f", "-r", "-t", "0", "-U", _UUID, device)

    def made_as(self, device: str) -> str:
        """Return the format, read by dump.f2fs."""
        return format_of(run("dump.f2fs", device))

    def complaints(self, output: str) -> str:
        """Return what fsck.f2fs finds wrong, without all that it finds right; everything if it marks nothing."""
        lines = output.splitlines()
        return one_line([line for line in lines if _COMPLAINT.search(line)] or lines)

    def error_count(self, device: str) -> int:
        """Return the errors in the kernel's messages, and one more if the driver asks for a check."""
        name = device.rpartition("/")[2]
        status = Path("/sys/fs/f2fs", name, "stat/sb_status").read_text()
        return errors(kernel.messages(), name) + needs_check(status)


def _variant(word: str, mode: str, unsafe: Mapping[str, str] | None = None) -> F2fs:
    option = f"fsync_mode={mode}"
    return F2fs(word, mount_options=f"{_NO_DISCARDS},{option}", reads_back=(option,), unsafe=unsafe or {})


VARIANTS = (
    _variant("f2fs", "posix"),
    _variant("f2fs.strict", "strict"),
    _variant("f2fs.nobarrier", "nobarrier", _NO_BARRIERS),
)


def format_of(output: str) -> str:
    """Return the lines of dump.f2fs that say how it was made, in one line."""
    matches = ((name, re.search(rf"^Info: {name} = (.*)$", output, re.MULTILINE)) for name in _MADE)
    return "; ".join(f"{name}: {match[1].strip()}" for name, match in matches if match)


def errors(messages: str, name: str) -> int:
    """Return how many of the kernel's messages are errors of f2fs on a device."""
    return len(kernel.messages_like(messages, re.compile(rf"F2FS-fs \({re.escape(name)}\): "), _ERROR_LEVEL))


def needs_check(status: str) -> bool:
    """Return whether the driver asks for a check, by the hexadecimal text of its `sb_status`."""
    return bool(int(status, 16) & _NEEDS_CHECK)
