"""ext2, ext3 and ext4, as e2fsprogs makes them and the ext4 driver of Linux mounts them: one driver, three formats.

ext2 has no journal, so it is repaired before each mount, as every distribution does at boot. For ext2, too, the driver
flushes the disk at an fsync. Without barriers nothing flushes the disk: the journal commits in an order that the disk's
cache need not keep. The kernel's documentation allows that on a disk whose cache survives a power cut
(Documentation/admin-guide/ext4.rst, `barrier`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from rig.contract.faultspecs import CACHE_LOSING_FAULTS, CRASH_FAULTS
from rig.contract.places import FilePlaces
from rig.filesystems import extblocks, md
from rig.filesystems.filesystem import FileSystem
from rig.filesystems.roles import BlockRole, Read

DISK_MIB = 64
JOURNAL_DISK_MIB = 8
_UUID = "12345678-1234-1234-1234-123456789abc"
_JOURNAL_UUID = "87654321-4321-4321-4321-cba987654321"
# Nothing random, and everything written at once. Only ext4 knows the last two options.
_EXTENDED = f"hash_seed={_UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
_EXTENDED_EXT4 = f"{_EXTENDED},orphan_file_size=8k"
_COMMON = ("-q", "-F", "-b", "4096", "-U", _UUID)
_LIMIT_S = 60
# e2fsck exits with 0 for a clean file system; 1 means that it would have repaired something that a journal replay
# explains.
_CLEAN, _REPAIRED = 0, 1
# With -y each question of e2fsck has this answer.
_ANSWER = "? yes"
_SAID_CHARS = 400
# ext4 allocates a block as unwritten and converts it once it is written. If that write fails, Linux 6.12 may log
# "failed to convert unwritten extents to written extents -- potential data loss" and never convert them. Data that is
# later written and synced there successfully then reads as zeros after a cut, whatever the engine does. With this
# option there is nothing to convert, so a loss is due to the engine.
# With the journal on a separate disk the default, dioread_nolock, does not flush the data disk at the fsync of a file
# that grew, so no setting of a database keeps anything: "jbd2: add a missing data flush during file and fs
# synchronization", Zhang Yi, linux-ext4, 2024-12-06.
_WRITES_STAY = "dioread_lock"
# A late discard needs a file system that sends discards.
_DISCARDS = {"discard": "discard"}
# The older formats know no unwritten extents.
_OPTIONS_OF_EXT4 = _DISCARDS | dict.fromkeys(
    ("twodisk", "ioerror-write", "ioerror-fsync", "ioerror-fsyncs"), _WRITES_STAY
)
_NO_BARRIERS = dict.fromkeys(CACHE_LOSING_FAULTS, "it is mounted without barriers, so an fsync does not flush the disk")
_NO_JOURNAL = dict.fromkeys(CRASH_FAULTS, "it has no journal, so a crash may damage the file system itself")
# The lines of dumpe2fs that say how it was made.
_MADE = ("Filesystem features", "Inode count", "Block count", "Block size", "Inode size", "Total journal size")


@dataclass(frozen=True)
class Ext(FileSystem):
    """One format with its options."""

    extended: str = _EXTENDED
    # Features, in the words of mkfs, beyond the defaults of the format.
    features: str = ""
    # How many files it has room for; it needs some of these itself.
    inode_count: int = 256

    def make(self, device: str) -> None:
        """Make the file system; a journal has 4 MiB."""
        _run(f"mkfs.{self.kernel_type}", *self._common, *self._journal, device)

    def holding(self, file_count: int) -> Self:
        """Return the same format with room for at least `file_count` files."""
        return replace(self, inode_count=max(self.inode_count, file_count))

    def made_as(self, device: str) -> str:
        """Return the format, read by dumpe2fs."""
        command = ["dumpe2fs", "-h", device]
        output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
        lines = [line.partition(":")[::2] for line in output.splitlines()]
        return "; ".join(f"{name}: {' '.join(value.split())}" for name, value in lines if name in _MADE)

    def mounted_with(self, device: str) -> str:
        """Return all mount options, the default ones too."""
        # For all formats the kernel's type is ext4, the name of the driver.
        return ",".join(Path("/proc/fs/ext4", Path(device).name, "options").read_text().split())

    def damage(self, device: str) -> str:
        """Return what e2fsck complains about; empty if nothing."""
        return _check("-n", device)

    def repair(self, device: str) -> str:
        """Repair what e2fsck finds."""
        return _check_text(_e2fsck("-y", device))

    def role_of(self, offset_bytes: int, data: bytes, read: Read, files: Sequence[FilePlaces]) -> BlockRole | None:
        """Return what a write to the device is, None for data of a file."""
        return extblocks.role_of(offset_bytes, data, read, files)

    def error_count(self, device: str) -> int:
        """Return the number of errors that the driver has counted."""
        # This runs after each crash state; a Path would take three times as long under emulation.
        name = device.rpartition("/")[2]
        with open(f"/sys/fs/ext4/{name}/errors_count", "rb", buffering=0) as file:
            return int(file.read())

    @property
    def _common(self) -> tuple[str, ...]:
        return (
            *_COMMON,
            "-N",
            str(self.inode_count),
            "-E",
            self.extended,
            *(("-O", self.features) if self.features else ()),
        )

    @property
    def _journal(self) -> tuple[str, ...]:
        return ()


E = TypeVar("E", bound=Ext)


class Ext2(Ext):
    """The format without a journal."""

    # The kernel of user-mode machines has the old driver of ext2 as well.
    checked_as = "ext4"

    def recover(self, device: str) -> str:
        """Repair it; return what e2fsck found, empty if it only noted that the file system had not been unmounted."""
        process = _e2fsck("-y", device)
        return _check_text(process) if _ANSWER in process.stdout or process.returncode > _REPAIRED else ""


class LoggedExt(Ext):
    """A format with a journal."""

    @property
    def _journal(self) -> tuple[str, ...]:
        return "-J", "size=4"


class JournaledExt(LoggedExt):
    """A format with a journal, which may have a disk of its own."""

    @property
    def second_disk_mib(self) -> int:
        """Return the size of the journal's disk."""
        return JOURNAL_DISK_MIB

    def make_on_two(self, first: str, second: str, first_mib: int) -> None:
        """Make the file system with its journal on the second disk."""
        _run("mke2fs", "-q", "-F", "-b", "4096", "-U", _JOURNAL_UUID, "-O", "journal_dev", second)
        _run(f"mkfs.{self.kernel_type}", *self._common, "-J", f"device={second}", first, f"{first_mib}M")

    @contextmanager
    def unite(self, first: str, second: str) -> Iterator[tuple[str, str]]:
        """Give the disk with the data, and the option that names the journal's disk."""
        yield first, f"journal_path={second}"

    def damage_on_two(self, device: str, second: str) -> str:
        """Return what e2fsck complains about if the journal is on the second disk."""
        return _check("-n", "-j", second, device)


@dataclass(frozen=True)
class MirroredExt(LoggedExt):
    """A format with a journal on two disks that Linux md mirrors."""

    disk_mib_min: int = 2 * DISK_MIB
    modules: tuple[str, ...] = md.MODULES
    # The copies have no checksums.
    knows_copies: bool = False

    @property
    def second_disk_mib(self) -> int:
        """Return half of both disks."""
        return self.disk_mib_min // 2

    def make_on_two(self, first: str, second: str, first_mib: int) -> None:  # noqa: ARG002 - it takes the whole disks
        """Make the mirror, and the file system on it."""
        md.make(first, second)
        with md.assemble(first, second) as device:
            self.make(device)

    @contextmanager
    def unite(self, first: str, second: str) -> Iterator[tuple[str, str]]:
        """Assemble the mirror of the disks whose superblock is sound, and give its device."""
        with md.assemble(first, second) as device:
            yield device, ""

    def made_as(self, device: str) -> str:
        """Return the format, and what the mirror is made of."""
        return f"{super().made_as(device)}; {md.made_as()}"

    def damage_on_two(self, device: str, second: str) -> str:  # noqa: ARG002 - the device is both
        """Return what e2fsck complains about."""
        return self.damage(device)


def _ext4(
    word: str, *reads_back: str, options: str = "", unsafe: Mapping[str, str] | None = None, features: str = ""
) -> JournaledExt:
    made = newest(JournaledExt, word, *reads_back, unsafe=unsafe or {})
    # Then all data goes through the journal, in transactions.
    order = "data=journal" in reads_back
    return replace(made, mount_options=options, keeps_order=order, is_default=word == "ext4", features=features)


def newest(kind: type[E], word: str, *reads_back: str, unsafe: Mapping[str, str]) -> E:
    """Return the newest format, as its tools make it by default."""
    return kind(word, "ext4", "", _OPTIONS_OF_EXT4, reads_back, unsafe, extended=_EXTENDED_EXT4)


VARIANTS = (
    _ext4("ext4", "data=ordered", "barrier"),
    _ext4("ext4.writeback", "data=writeback", "barrier", options="data=writeback"),
    _ext4("ext4.journal", "data=journal", "barrier", options="data=journal"),
    # A file that is renamed over another is not written out before the rename.
    _ext4("ext4.noautoda", "data=ordered", "barrier", "noauto_da_alloc", options="noauto_da_alloc"),
    # Blocks are allocated when they are written to, so that a commit of the journal waits for their data.
    _ext4("ext4.nodelalloc", "data=ordered", "barrier", "nodelalloc", options="nodelalloc"),
    # The journal is committed every second or every 30, instead of every 5.
    _ext4("ext4.commit1", "data=ordered", "barrier", "commit=1", options="commit=1"),
    _ext4("ext4.commit30", "data=ordered", "barrier", "commit=30", options="commit=30"),
    # An fsync may log only what a file changed, instead of whole blocks.
    _ext4("ext4.fastcommit", "data=ordered", "barrier", features="fast_commit"),
    _ext4("ext4.nobarrier", "data=ordered", "nobarrier", options="barrier=0", unsafe=_NO_BARRIERS),
    MirroredExt("ext4.raid1", "ext4", "", {}, ("data=ordered", "barrier"), extended=_EXTENDED_EXT4),
    JournaledExt("ext3", "ext3", reads_back=("data=ordered", "barrier")),
    JournaledExt("ext3.nobarrier", "ext3", "barrier=0", reads_back=("data=ordered", "nobarrier"), unsafe=_NO_BARRIERS),
    Ext2("ext2", "ext2", reads_back=("barrier",), unsafe=_NO_JOURNAL),
)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _check(*words: str) -> str:
    process = _e2fsck(*words)
    return "" if process.returncode == _CLEAN else _check_text(process)


def _e2fsck(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["e2fsck", "-f", *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _check_text(process: subprocess.CompletedProcess[str]) -> str:
    return f"e2fsck {process.returncode}: {' '.join(process.stdout.split())[:_SAID_CHARS]}"
