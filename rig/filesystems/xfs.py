"""XFS as xfsprogs makes it by default, on the smallest disk that it accepts.

mkfs.xfs refuses a disk below 300 MiB and a log below 64 MiB, which it fills with zeros. The driver keeps no count of
errors; what it finds wrong is in the kernel's messages. Two file systems of one UUID cannot be mounted at a time, and
need not be: a guest mounts one disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from rig.filesystems import kernel
from rig.filesystems.checked import CheckedFileSystem, one_line, run

_UUID = "12345678-1234-1234-1234-123456789abc"
# Progress, not findings.
_PROGRESS = re.compile(r"(Phase \d+ -|\s+- |No modify flag set)")
# KERN_ERR. A mount after a crash says that it starts and ends the recovery, which is a notice.
_ERROR_LEVEL = 3


@dataclass(frozen=True)
class Xfs(CheckedFileSystem):
    """The file system with its default options."""

    CHECKER: ClassVar[tuple[str, ...]] = ("xfs_repair",)
    LOOKS: ClassVar[tuple[str, ...]] = ("-n",)
    # It refuses to repair while the log has to be replayed, which the next mount does; to look is to complain then.
    REPAIRS: ClassVar[tuple[str, ...]] = ()

    word: str = "xfs"
    kernel_type: str = "xfs"
    modules: tuple[str, ...] = ("libcrc32c", "xfs")
    disk_mib_min: int = 300
    reads_back: tuple[str, ...] = ("attr2", "inode64", "noquota")

    def make(self, device: str) -> None:
        """Make the file system; its log has 64 MiB."""
        run("mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={_UUID}", device)

    def made_as(self, device: str) -> str:
        """Return the format, read by xfs_info."""
        return geometry(run("xfs_info", device))

    def complaints(self, output: str) -> str:
        """Return what xfs_repair says without its progress."""
        return one_line([line for line in output.splitlines() if not _PROGRESS.match(line)])

    def error_count(self, device: str) -> int:
        """Return the number of errors in the kernel's messages since these were forgotten."""
        return errors(kernel.messages(), device)


VARIANTS = (Xfs(),)


def geometry(output: str) -> str:
    """Return what xfs_info says without the device: its lines, each with single blanks, in one line."""
    lines = (" ".join(line.split()).lstrip("= ") for line in output.splitlines())
    return "; ".join(re.sub(r"^meta-data=\S+ ", "", line) for line in lines)


def errors(messages: str, device: str) -> int:
    """Return how many of the kernel's messages are errors of XFS on a device."""
    return len(kernel.messages_like(messages, beginning(device), _ERROR_LEVEL))


def beginning(device: str) -> re.Pattern[str]:
    """Return how the driver's messages about a device begin."""
    return re.compile(rf"XFS \({re.escape(device.rpartition('/')[2])}\): ")
