"""One module a file system, found by its place here: a module has `VARIANTS`, each a `FileSystem`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from rig.contract.errors import UsageError
from rig.filesystems.filesystem import FileSystem, JournalDisk

__all__ = ["FileSystem", "JournalDisk", "filesystem_named", "filesystems", "with_journal_disk"]
_OTHERS = ("filesystem",)


@cache
def filesystems() -> tuple[FileSystem, ...]:
    """Return every file system and variant, sorted by word; raise TypeError for a module that has none."""
    found: list[FileSystem] = []
    for module in pkgutil.iter_modules(__path__):
        if module.name not in _OTHERS:
            for variant in importlib.import_module(f"{__name__}.{module.name}").VARIANTS:
                if not isinstance(variant, FileSystem):
                    raise TypeError(f"rig.filesystems.{module.name}: {variant!r} lacks what a FileSystem has")
                found.append(variant)
    return tuple(sorted(found, key=lambda variant: variant.word))


def filesystem_named(word: str) -> FileSystem:
    """Return a file system; raise UsageError naming the choices."""
    for found in filesystems():
        if found.word == word:
            return found
    raise UsageError(f"unknown file system {word!r}; there are: {', '.join(found.word for found in filesystems())}")


def with_journal_disk(filesystem: FileSystem) -> JournalDisk:
    """Return a file system as one whose journal can have a disk of its own; raise UsageError if it cannot."""
    if not isinstance(filesystem, JournalDisk):
        raise UsageError(f"{filesystem.word} cannot have its journal on a disk of its own")
    return filesystem
