"""XFS as xfsprogs makes it by default, on the smallest disk that it accepts.

mkfs.xfs refuses a disk below 300 MiB and a log below 64 MiB, which it fills with zeros. The driver keeps no count of
errors; what it finds wrong is in the kernel's messages. Two file systems of one UUID cannot be mounted at a time, and
need not be: a guest mounts one disk.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from rig.filesystems import kernel

_UUID = "12345678-1234-1234-1234-123456789abc"
_LIMIT_S = 120
# xfs_repair(8): 1 means damage, 2 that the log has to be replayed first.
_CLEAN = 0
# Progress, not findings.
_PROGRESS = re.compile(r"(Phase \d+ -|\s+- |No modify flag set)")
_SAID_CHARS = 400
# KERN_ERR. A mount after a crash says that it starts and ends the recovery, which is a notice.
_ERROR_LEVEL = 3


@dataclass(frozen=True)
class Xfs:
    """The file system with its default options."""

    word: str = "xfs"
    kernel_type: str = "xfs"
    modules: tuple[str, ...] = ("libcrc32c", "xfs")
    kernel: str = ""
    disk_mib_min: int = 300
    mount_options: str = ""
    options_by_fault: Mapping[str, str] = field(default_factory=lambda: {"discard": "discard"})
    reads_back: tuple[str, ...] = ("attr2", "inode64", "noquota")
    unsafe: Mapping[str, str] = field(default_factory=dict)
    keeps_order: bool = False
    maps_files: bool = True
    is_default: bool = False

    def make(self, device: str) -> None:
        """Make the file system; its log has 64 MiB."""
        _run("mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={_UUID}", device)

    def made_as(self, device: str) -> str:
        """Return the format, read by xfs_info."""
        return geometry(_run("xfs_info", device).stdout)

    def mounted_with(self, device: str) -> str:
        """Return all mount options, the default ones too."""
        return kernel.mount_options(device)

    def damage(self, device: str) -> str:
        """Return what xfs_repair complains about; empty if nothing. A log that was not replayed is a complaint."""
        process = _repair("-n", device)
        return "" if process.returncode == _CLEAN else _told(process)

    def repair(self, device: str) -> str:
        """Repair what xfs_repair finds; it refuses while the log has to be replayed, which the next mount does."""
        return _told(_repair(device))

    def error_count(self, device: str) -> int:
        """Return the number of errors in the kernel's messages since these were forgotten."""
        return errors(kernel.messages(), device)


VARIANTS = (Xfs(),)


def geometry(said: str) -> str:
    """Return what xfs_info says without the device: its lines, each with single blanks, in one line."""
    lines = (" ".join(line.split()).lstrip("= ") for line in said.splitlines())
    return "; ".join(re.sub(r"^meta-data=\S+ ", "", line) for line in lines)


def complaints(said: str) -> str:
    """Return what xfs_repair says without its progress."""
    return " ".join(" ".join(line for line in said.splitlines() if not _PROGRESS.match(line)).split())


def errors(messages: str, device: str) -> int:
    """Return how many of the kernel's messages are errors of XFS on a device."""
    return len(kernel.said(messages, beginning(device), _ERROR_LEVEL))


def beginning(device: str) -> re.Pattern[str]:
    """Return how the driver's messages about a device begin."""
    return re.compile(rf"XFS \({re.escape(device.rpartition('/')[2])}\): ")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S)


def _repair(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["xfs_repair", *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _told(process: subprocess.CompletedProcess[str]) -> str:
    return f"xfs_repair {process.returncode}: {complaints(process.stdout + process.stderr)[:_SAID_CHARS]}"
