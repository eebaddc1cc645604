"""Carry out a pattern, and say what is left of it. Everything happens in this process; no other is started."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rig.contract.findings import Finding, FindingKind
from rig.engines.files.names import Create, Link, Replace, Unlink
from rig.engines.files.pattern import Pattern, PatternTask
from rig.engines.files.records import Log, MappedSlots, Pair, Slots
from rig.engines.files.space import Fallocate, Punch, Truncate
from rig.engines.own import Reply, Start, Task

_PATTERNS: Mapping[str, type[Pattern]] = {
    "append": Log, "overwrite": Slots, "mapped": MappedSlots, "replace": Replace, "create": Create, "link": Link,
    "unlink": Unlink, "truncate": Truncate, "fallocate": Fallocate, "punch": Punch, "pair": Pair,
}  # fmt: skip


class PatternSession:
    """A pattern at work."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._pattern = _pattern(task)

    def commit(self, number: int) -> Reply:
        """Carry out a transaction; the first one makes all preparations."""
        if number == 1:
            self._pattern.prepare()
        self._pattern.carry_out(number)
        return Reply()

    def settings(self) -> dict[str, str]:
        """Return the pattern, and the version of the kernel whose file system is measured."""
        return {"pattern": self._task.settings["pattern"], "version": os.uname().release}

    def close(self) -> None:
        """Leave the files open, as a power cut finds them."""


def session(start: Start, task: Task) -> PatternSession:  # noqa: ARG001 - there is no process to start
    """Return the pattern at work."""
    return PatternSession(task)


def recovered(start: Start, task: Task) -> Finding:  # noqa: ARG001 - there is no process to start
    """Return what is left of the pattern."""
    try:
        inventory = _pattern(task).inventory()
    except OSError as error:
        return Finding(FindingKind.UNOPENABLE, detail=str(error))
    return inventory if isinstance(inventory, Finding) else inventory.finding(task.transaction_count)


def _pattern(task: Task) -> Pattern:
    word, _, after = task.settings["pattern"].partition("-")
    return _PATTERNS[word](PatternTask(task.directory, task.seed, task.transaction_count, after))
