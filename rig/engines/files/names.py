"""Patterns of names: files that are created, replaced, linked and unlinked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.files.calls import content, durable_file, new_file, sync_directory, sync_file
from rig.engines.files.pattern import PatternTask
from rig.engines.files.sectors import NOBODY, authors, describe, sectors_of

# Two blocks and a part of one.
_FILE_SECTORS = 18
_PREFIX = "file-"
_NUMBERED = re.compile(_PREFIX + "([0-9]{1,9})", re.ASCII)


class Create:
    """New files."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task

    def prepare(self) -> None:
        """Make nothing."""

    def carry_out(self, number: int) -> None:
        """Create a file and write it."""
        _make(self._task, _name(self._task, number), number)
        _name_synced(self._task)

    def inventory(self) -> Inventory:
        """Return the files."""
        have, torn = set(), {}
        for number in _numbers(os.listdir(self._task.directory)):
            data = content(_name(self._task, number))
            if data == _data(self._task, number):
                have.add(number)
            else:
                torn[number] = f"has {describe(self._task.seed, data)}"
        return Inventory(frozenset(have), torn)


class Replace:
    """One file. Each transaction makes a new version, which takes the name of the old version."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task
        self._path, self._other = task.path("current"), task.path("next")

    def prepare(self) -> None:
        """Make a version that no transaction wrote."""
        durable_file(self._path, _data(self._task, 0))

    def carry_out(self, number: int) -> None:
        """Write a new version and rename it."""
        _make(self._task, self._other, number)
        os.rename(self._other, self._path)
        _name_synced(self._task)

    def inventory(self) -> Inventory | Finding:
        """Return which version is there. Anything but a whole version is damage: the version before is gone, too."""
        if not os.path.exists(self._path):
            return Inventory(frozenset())
        data = content(self._path)
        writers = authors(self._task.seed, 0, data)
        if len(writers) != 1 or NOBODY in writers or data != _data(self._task, number := min(writers)):
            return Finding(FindingKind.TORN, detail=f"no whole version, but {describe(self._task.seed, data)}")
        return Inventory(frozenset(range(1, number + 1)))


class Link:
    """Further names of one file."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task
        self._path = task.path("origin")

    def prepare(self) -> None:
        """Make the file."""
        durable_file(self._path, _data(self._task, 0))

    def carry_out(self, number: int) -> None:
        """Give it a name."""
        os.link(self._path, _name(self._task, number))
        _name_synced(self._task)

    def inventory(self) -> Inventory | Finding:
        """Return the names; damage if any of them is not a name of the file."""
        numbers = _numbers(os.listdir(self._task.directory))
        for path in [_name(self._task, number) for number in sorted(numbers)]:
            if content(path) != _data(self._task, 0):
                return Finding(FindingKind.FOREIGN, detail=f"{os.path.basename(path)} is not the file that was linked")
        return Inventory(frozenset(numbers))


class Unlink:
    """Names that are removed, one after another."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task
        # Prepared last: if this file is missing, the missing names may never have been there.
        self._path = task.path("prepared")

    def prepare(self) -> None:
        """Make a file for each transaction."""
        for number in range(1, self._task.count + 1):
            new_file(_name(self._task, number), b"")
        sync_directory(self._task.directory)
        durable_file(self._path, b"")

    def carry_out(self, number: int) -> None:
        """Unlink a name."""
        os.unlink(_name(self._task, number))
        _name_synced(self._task)

    def inventory(self) -> Inventory:
        """Return the names that are gone."""
        names = os.listdir(self._task.directory)
        if os.path.basename(self._path) not in names:
            return Inventory(frozenset())
        return Inventory(frozenset(range(1, self._task.count + 1)) - _numbers(names))


def _make(task: PatternTask, path: str, number: int) -> None:
    new_file(path, _data(task, number))
    if task.after != "none":
        sync_file(path)


def _name_synced(task: PatternTask) -> None:
    if task.after == "synced":
        sync_directory(task.directory)


def _data(task: PatternTask, number: int) -> bytes:
    return sectors_of(task.seed, number, 0, _FILE_SECTORS)


def _name(task: PatternTask, number: int) -> str:
    return task.path(f"{_PREFIX}{number}")


def _numbers(names: Iterable[str]) -> frozenset[int]:
    matches = map(_NUMBERED.fullmatch, names)
    return frozenset(int(match[1]) for match in matches if match)
