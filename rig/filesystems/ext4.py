"""ext4, as e2fsprogs makes it and Linux mounts it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

_UUID = "12345678-1234-1234-1234-123456789abc"
_JOURNAL_UUID = "87654321-4321-4321-4321-cba987654321"
_EXTENDED = f"hash_seed={_UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard,orphan_file_size=8k"
_LIMIT_S = 60
# e2fsck exits with 0 for a clean file system; 1 means that it would have repaired something that a journal replay
# explains.
_CLEAN = 0
_SAID_CHARS = 400
# ext4 allocates a block as unwritten and converts it once it is written. If that write fails, Linux 6.12 may log
# "failed to convert unwritten extents to written extents -- potential data loss" and never convert them. Data that is
# later written and synced there successfully then reads as zeros after a cut, whatever the engine does. With this
# option there is nothing to convert, so a loss is due to the engine.
# With the journal on a separate disk the default, dioread_nolock, does not flush the data disk at the fsync of a file
# that grew, so no setting of a database keeps anything: "jbd2: add a missing data flush during file and fs
# synchronization", Zhang Yi, linux-ext4, 2024-12-06.
_WRITES_STAY = "dioread_lock"


@dataclass(frozen=True)
class Ext4:
    """ext4 and its variants."""

    word: str = "ext4"
    kernel_type: str = "ext4"
    disk_mib_min: int = 64
    mount_options: str = ""
    options_by_fault: Mapping[str, str] = field(
        default_factory=lambda: {
            # A late discard needs a file system that sends discards.
            "discard": "discard",
            "twodisk": _WRITES_STAY,
            **dict.fromkeys(("ioerror-write", "ioerror-fsync", "ioerror-fsyncs"), _WRITES_STAY),
        }
    )

    def make(self, device: str) -> None:
        """Make the file system with a journal of 4 MiB."""
        _run("mkfs.ext4", *_MADE, "-J", "size=4", device)

    def make_with_journal(self, device: str, journal: str, data_mib: int) -> None:
        """Make the file system with its journal on a separate disk."""
        _run("mke2fs", "-q", "-F", "-b", "4096", "-U", _JOURNAL_UUID, "-O", "journal_dev", journal)
        _run("mkfs.ext4", *_MADE, "-J", f"device={journal}", device, f"{data_mib}M")

    def journal_option(self, journal: str) -> str:
        """Return the mount option that names the journal's disk."""
        return f"journal_path={journal}"

    def damage(self, device: str) -> str:
        """Return what e2fsck complains about; empty if nothing."""
        return _checked("-n", device)

    def damage_with_journal(self, device: str, journal: str) -> str:
        """Return what e2fsck complains about if the journal is on a separate disk."""
        return _checked("-n", "-j", journal, device)

    def repair(self, device: str) -> str:
        """Repair what e2fsck finds."""
        return _said(_e2fsck("-y", device))

    def error_count(self, device: str) -> int:
        """Return the number of errors that ext4 has counted."""
        # Asked after each crash state, where a Path would take three times as long under emulation.
        name = device.rpartition("/")[2]
        with open(f"/sys/fs/ext4/{name}/errors_count", "rb", buffering=0) as file:
            return int(file.read())


VARIANTS = (Ext4(),)
_MADE = ("-q", "-F", "-b", "4096", "-N", "256", "-U", _UUID, "-E", _EXTENDED)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _checked(*words: str) -> str:
    process = _e2fsck(*words)
    return "" if process.returncode == _CLEAN else _said(process)


def _e2fsck(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["e2fsck", "-f", *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _said(process: subprocess.CompletedProcess[str]) -> str:
    return f"e2fsck {process.returncode}: {' '.join(process.stdout.split())[:_SAID_CHARS]}"
