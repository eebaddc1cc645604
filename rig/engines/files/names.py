"""Patterns of names: files that are created, replaced, linked and unlinked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Answer
from rig.engines.files.calls import content, durable_file, new_file, sync_directory, sync_file
from rig.engines.files.pattern import Job
from rig.engines.files.sectors import NOBODY, authors, described, written

# Two blocks and a part of one.
_FILE_SECTORS = 18
_PREFIX = "file-"
_NUMBERED = re.compile(_PREFIX + "([0-9]{1,9})", re.ASCII)


class Create:
    """New files."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Make nothing."""

    def carry_out(self, number: int) -> None:
        """Create a file and write it."""
        _made(self._job, _name(self._job, number), number)
        _name_synced(self._job)

    def found(self) -> Answer:
        """Return the files."""
        have, torn = set(), {}
        for number in _numbers(os.listdir(self._job.directory)):
            data = content(_name(self._job, number))
            if data == _data(self._job, number):
                have.add(number)
            else:
                torn[number] = f"has {described(self._job.seed, data)}"
        return Answer(frozenset(have), torn)


class Replace:
    """One file. Each transaction makes a new version, which takes the name of the old version."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._path, self._other = job.path("current"), job.path("next")

    def prepare(self) -> None:
        """Make a version that no transaction wrote."""
        durable_file(self._path, _data(self._job, 0))

    def carry_out(self, number: int) -> None:
        """Write a new version and rename it."""
        _made(self._job, self._other, number)
        os.rename(self._other, self._path)
        _name_synced(self._job)

    def found(self) -> Answer | Finding:
        """Return which version is there. Anything but a whole version is damage: the version before is gone, too."""
        if not os.path.exists(self._path):
            return Answer(frozenset())
        data = content(self._path)
        found = authors(self._job.seed, 0, data)
        if len(found) != 1 or NOBODY in found or data != _data(self._job, number := min(found)):
            return Finding(FindingKind.TORN, detail=f"no whole version, but {described(self._job.seed, data)}")
        return Answer(frozenset(range(1, number + 1)))


class Link:
    """Further names of one file."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._path = job.path("origin")

    def prepare(self) -> None:
        """Make the file."""
        durable_file(self._path, _data(self._job, 0))

    def carry_out(self, number: int) -> None:
        """Give it a name."""
        os.link(self._path, _name(self._job, number))
        _name_synced(self._job)

    def found(self) -> Answer | Finding:
        """Return the names; damage if any of them is not a name of the file."""
        numbers = _numbers(os.listdir(self._job.directory))
        for path in [_name(self._job, number) for number in sorted(numbers)]:
            if content(path) != _data(self._job, 0):
                return Finding(FindingKind.FOREIGN, detail=f"{os.path.basename(path)} is not the file that was linked")
        return Answer(frozenset(numbers))


class Unlink:
    """Names that are removed, one after another."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # Prepared last: if this file is missing, the missing names may never have been there.
        self._path = job.path("prepared")

    def prepare(self) -> None:
        """Make a file for each transaction."""
        for number in range(1, self._job.count + 1):
            new_file(_name(self._job, number), b"")
        sync_directory(self._job.directory)
        durable_file(self._path, b"")

    def carry_out(self, number: int) -> None:
        """Unlink a name."""
        os.unlink(_name(self._job, number))
        _name_synced(self._job)

    def found(self) -> Answer:
        """Return the names that are gone."""
        names = os.listdir(self._job.directory)
        if os.path.basename(self._path) not in names:
            return Answer(frozenset())
        return Answer(frozenset(range(1, self._job.count + 1)) - _numbers(names))


def _made(job: Job, path: str, number: int) -> None:
    new_file(path, _data(job, number))
    if job.after != "none":
        sync_file(path)


def _name_synced(job: Job) -> None:
    if job.after == "synced":
        sync_directory(job.directory)


def _data(job: Job, number: int) -> bytes:
    return written(job.seed, number, 0, _FILE_SECTORS)


def _name(job: Job, number: int) -> str:
    return job.path(f"{_PREFIX}{number}")


def _numbers(names: Iterable[str]) -> frozenset[int]:
    matches = map(_NUMBERED.fullmatch, names)
    return frozenset(int(match[1]) for match in matches if match)
