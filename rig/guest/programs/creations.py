"""A user's program that is made many times: each transaction makes its data anew, in an empty directory of its own.

The directories are there, and durable, before the first transaction. In each the program carries out its first
transaction, acknowledges it and is let go. After a cut it recovers in every directory that is not empty. What it made
in a directory counts as one transaction, so a program that does not open again where its creation was cut is found out,
and so is one that loses an acknowledged creation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.own import NoResult, OwnDriver, OwnSession, Process, Reply, Task
from rig.guest import filecontent

# Start a program in this directory.
StartIn = Callable[[str, Sequence[str]], Process]
# From this many directories in which nothing was found, what the program said is kept.
_WORDS_MAX = 3
# Digests of directories in which the program has found its transaction: a cut changes few of many directories.
_WHOLE: set[str] = set()


def make_directories(task: Task) -> None:
    """Make the empty directories."""
    for number in range(1, task.transaction_count + 1):
        os.mkdir(_directory(task, number))


class Creations:
    """The program at work, once in each directory; see `rig.engines.own.OwnSession`."""

    def __init__(self, driver: OwnDriver, start: StartIn, task: Task) -> None:
        self._driver = driver
        self._start = start
        self._task = task
        self._session: OwnSession | None = None

    def commit(self, number: int) -> Reply:
        """Let go of the last directory, and make the program's data in the next one; what is made has no name."""
        if self._session:
            self._session.close()
        self._session = _session(self._driver, self._start, self._task, number)
        return replace(self._session.commit(1), step="")

    def settings(self) -> dict[str, str]:
        """Return what the last session reads back."""
        return self._last_session.settings()

    def close(self) -> None:
        """Let go of the last directory."""
        self._last_session.close()

    @property
    def _last_session(self) -> OwnSession:
        assert self._session, "nothing was made"
        return self._session


def recovered(driver: OwnDriver, start: StartIn, task: Task) -> Finding:
    """Have the program recover in each directory; return which were made, or the first in which it fails."""
    have: set[int] = set()
    torn: dict[int, str] = {}
    words: list[str] = []
    for number in range(1, task.transaction_count + 1):
        finding = _recovery_in(driver, start, task, number)
        if finding.kind is not FindingKind.PREFIX:
            return finding
        if finding.recovered:
            have.add(number)
        elif finding.is_torn:
            torn[number] = finding.detail
        elif finding.detail:
            words.append(f"in directory {number}: {finding.detail}")
    finding = Inventory(frozenset(have), torn).finding(task.transaction_count)
    return replace(finding, detail="; ".join(filter(None, [finding.detail, *words[:_WORDS_MAX]])))


def _recovery_in(driver: OwnDriver, start: StartIn, task: Task, number: int) -> Finding:
    directory = _directory(task, number)
    if not os.path.isdir(directory):
        return Finding(FindingKind.UNOPENABLE, detail=f"directory {number} is gone")
    if not os.listdir(directory):
        return Finding(FindingKind.PREFIX, recovered=0)
    content = filecontent.digest(directory)
    key = json.dumps([content, dict(task.settings), number])
    if content and key in _WHOLE:
        return Finding(FindingKind.PREFIX, recovered=1)
    try:
        finding = driver.recovered(lambda arguments: start(directory, arguments), _part(task, number))
    except NoResult as failure:
        return Finding(failure.kind, detail=f"in directory {number} it {failure.words}")
    if finding.kind is FindingKind.PREFIX and finding.recovered:
        _WHOLE.add(key)
    elif finding.kind is not FindingKind.PREFIX:
        finding = replace(finding, detail=f"in directory {number}: {finding.detail}", recovered=None)
    return finding


def _session(driver: OwnDriver, start: StartIn, task: Task, number: int) -> OwnSession:
    return driver.session(lambda arguments: start(_directory(task, number), arguments), _part(task, number))


def _part(task: Task, number: int) -> Task:
    """Return what is asked for in one directory."""
    return replace(task, directory=_directory(task, number), seed=task.seed + number, transaction_count=1)


def _directory(task: Task, number: int) -> str:
    return os.path.join(task.directory, str(number))
