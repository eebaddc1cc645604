"""Where speed is measured: the file system of a directory, and the disks below it.

Speed in memory says nothing about a disk, so a file system that keeps its files in memory is refused, and so is an
overlay or a loop device on top of one. Where no disk can be seen (a network file system, a container), flushes are not
counted, and a warning says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rig.contract.errors import UsageError
from rig.speed.trials import disks

_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs"})
_MEMORY_DISK = re.compile(r"(?:zram|ram)[0-9]+")
# Options under which a sync does not reach the disk.
_LYING = frozenset({"nobarrier", "barrier=0", "barrier=off", "volatile"})
_REMEDY = "name a directory on the disk whose speed matters: rig speed --dir PATH"


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo (proc(5))."""

    point: str
    kind: str
    source: str
    # Options of the mount and of the file system.
    options: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A directory on a disk."""

    folder: Path
    filesystem: str
    options: tuple[str, ...]
    # The sysfs folders of the disks; empty if none can be seen.
    disks: tuple[Path, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a reader of the figures needs to know about the place."""
        warnings = []
        if not self.disks:
            warnings.append(f"no disk can be seen below {self.filesystem}: its flushes are not counted")
        if lying := sorted(_LYING & set(self.options)):
            warnings.append(f"{self.filesystem} is mounted with {', '.join(lying)}: a sync does not reach the disk")
        through = [disk.name for disk in map(disks.describe, self.disks) if disk.write_cache == "write through"]
        warnings += [
            f"{name} says that it has no volatile cache, so the kernel sends it no flushes" for name in through
        ]
        return tuple(warnings)


def place_of(folder: Path, mounts: Path = _MOUNTS) -> Place:
    """Return the place of a directory; raise UsageError if its files are kept in memory."""
    return _place(folder, mounts_in(mounts.read_text()), set())


def mounts_in(text: str) -> list[Mount]:
    """Return the mounts of a mountinfo file; raise ValueError for a line in another format."""
    return [_mount(line) for line in text.split("\n") if line]


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds a path: the one with the longest mount point; of several mounts there, the last."""
    nearest = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (nearest is None or len(mount.point) >= len(nearest.point)):
            nearest = mount
    return nearest


def _place(folder: Path, mounts: list[Mount], seen: set[str]) -> Place:
    path = os.path.realpath(folder)
    mount = mount_of(path, mounts)
    if mount is None:
        raise UsageError(f"{folder} is on no mounted file system that this process can see; {_REMEDY}")
    if mount.kind in _IN_MEMORY:
        raise UsageError(f"{folder} is on {mount.kind}, which keeps its files in memory and has no disk; {_REMEDY}")
    below = _below(mount, path, mounts, seen)
    for disk in below:
        if _MEMORY_DISK.fullmatch(disk.name):
            raise UsageError(f"{folder} is on {mount.kind} on {disk.name}, a disk in memory; {_REMEDY}")
    return Place(folder, mount.kind, mount.options, below)


def _below(mount: Mount, path: str, mounts: list[Mount], seen: set[str]) -> tuple[Path, ...]:
    """Return the disks below a mount."""
    if mount.point in seen:
        return ()
    seen.add(mount.point)
    if mount.kind == "overlay":
        # In a container the upper layer is outside the tree that this process sees.
        upper = next((word.partition("=")[2] for word in mount.options if word.startswith("upperdir=")), "")
        return _lower(upper, f"{mount.kind} at {mount.point}", mounts, seen) if upper else ()
    below = disks.disks_of(_device(mount, path))
    files = [(disk, disks.backing_file(disk)) for disk in below]
    whole = [(disk,) if not file else _lower(file, disk.name, mounts, seen) for disk, file in files]
    return tuple(disk for each in whole for disk in each)


def _lower(path: str, what: str, mounts: list[Mount], seen: set[str]) -> tuple[Path, ...]:
    """Return the disks below a path in which another file system or a loop device is stored."""
    if not Path(path).exists():
        return ()
    try:
        return _place(Path(path), mounts, seen).disks
    except UsageError as error:
        raise UsageError(f"{what} is kept elsewhere: {error}") from None


def _device(mount: Mount, path: str) -> str:
    """Return `MAJOR:MINOR`, from the mount's source if the files have a number of their own, as on Btrfs."""
    number, source = Path(path).stat().st_dev, Path(mount.source)
    if os.major(number) == 0 and source.is_block_device():
        number = source.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def _mount(line: str) -> Mount:
    fields = line.split(" ")
    # Optional fields begin with the seventh, and a dash ends them.
    dash = fields.index("-", 6) if "-" in fields[6:] else len(fields)
    left, right = fields[:dash], fields[dash + 1 :]
    if len(right) < 3:
        raise ValueError(f"no line of mountinfo: {line!r}")
    options = dict.fromkeys([*left[5].split(","), *right[2].split(",")])
    return Mount(_unescape(left[4]), right[0], _unescape(right[1]), tuple(map(_unescape, options)))


def _unescape(word: str) -> str:
    """Return a word whose blanks and backslashes are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)
