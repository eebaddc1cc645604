"""File systems: every module in this package describes one by its `VARIANTS`, each a `FileSystem`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from rig.contract.errors import UsageError
from rig.filesystems.filesystem import (
    Aliased,
    Attributed,
    FileSystem,
    Mirrored,
    Numbered,
    Served,
    TwoDisks,
    Unjournaled,
)

__all__ = [
    "Aliased",
    "Attributed",
    "FileSystem",
    "Mirrored",
    "Numbered",
    "Served",
    "TwoDisks",
    "Unjournaled",
    "default_filesystems",
    "disks_mib",
    "filesystem_named",
    "filesystems",
    "furnish",
    "holding",
    "is_served",
    "keeps_order",
    "on_two_disks",
    "syncs_on_close",
    "unsafe",
]
_OTHERS = ("filesystem", "attributes", "checked", "extblocks", "kernel", "fiemap", "md", "roles")


@cache
def filesystems() -> tuple[FileSystem, ...]:
    """Return every file system and variant, sorted by word; raise TypeError for one that is not a FileSystem."""
    variants: list[FileSystem] = []
    for module in pkgutil.iter_modules(__path__):
        if module.name not in _OTHERS:
            for variant in importlib.import_module(f"{__name__}.{module.name}").VARIANTS:
                if not isinstance(variant, FileSystem):
                    raise TypeError(f"rig.filesystems.{module.name}: {variant!r} is not a FileSystem")
                variants.append(variant)
    return tuple(sorted(variants, key=lambda variant: variant.word))


def default_filesystems() -> tuple[FileSystem, ...]:
    """Return the file systems that are measured if no scenario is named."""
    return tuple(filesystem for filesystem in filesystems() if filesystem.is_default)


def filesystem_named(word: str) -> FileSystem:
    """Return a file system; raise UsageError naming the choices."""
    for filesystem in filesystems():
        if filesystem.word == word:
            return filesystem
    raise UsageError(
        f"unknown file system {word!r}; there are: {', '.join(filesystem.word for filesystem in filesystems())}"
    )


def unsafe(word: str, fault: str) -> str:
    """Return why nothing is promised on a file system under a fault; empty if promises hold, or if it is unknown."""
    return next((filesystem.unsafe.get(fault, "") for filesystem in filesystems() if filesystem.word == word), "")


def keeps_order(word: str) -> bool:
    """Return whether a crash leaves the files of a file system as they were at one moment; False for an unknown one."""
    return any(filesystem.keeps_order for filesystem in filesystems() if filesystem.word == word)


def syncs_on_close(word: str) -> bool:
    """Return whether a file that is closed or unlocked on a file system is as safe as after a sync."""
    return any(
        filesystem.syncs_on_close
        for filesystem in filesystems()
        if filesystem.word == word and isinstance(filesystem, Served)
    )


def is_served(word: str) -> bool:
    """Return whether programs reach a file system through a server; False for an unknown one."""
    return any(isinstance(filesystem, Served) for filesystem in filesystems() if filesystem.word == word)


def holding(filesystem: FileSystem, file_count: int) -> FileSystem:
    """Return a file system with room for `file_count` files (0: as many as by default), if its room can be chosen."""
    return filesystem.holding(file_count) if file_count and isinstance(filesystem, Numbered) else filesystem


def furnish(filesystem: FileSystem, directory: str) -> None:
    """Do to an empty mounted directory what a variant needs beyond its mount options."""
    if isinstance(filesystem, Attributed):
        filesystem.set_attributes(directory)


def on_two_disks(filesystem: FileSystem) -> TwoDisks:
    """Return a file system that can lie on two disks; raise UsageError if it cannot."""
    if not isinstance(filesystem, TwoDisks):
        raise UsageError(f"{filesystem.word} cannot lie on two disks")
    return filesystem


def disks_mib(filesystem: FileSystem, *, on_two: bool) -> tuple[int, ...]:
    """Return the size of each disk of a file system."""
    if not on_two:
        return (filesystem.disk_mib_min,)
    second_mib = on_two_disks(filesystem).second_disk_mib
    return filesystem.disk_mib_min - second_mib, second_mib
