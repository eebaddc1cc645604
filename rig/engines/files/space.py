"""Patterns that change which parts of a file have space: truncate, fallocate, and holes."""

from __future__ import annotations

import os

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.files.calls import AFTER, content, durable_file, punch
from rig.engines.files.pattern import PatternTask
from rig.engines.files.sectors import SECTOR_BYTES, authors, sectors_of

# Two blocks.
_PART_SECTORS = 16
_PART_BYTES = _PART_SECTORS * SECTOR_BYTES


class _Parts:
    """A file of as many parts as there are transactions."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task
        self._path = task.path("parts")
        self._file = -1

    def prepare(self) -> None:
        """Make the file, whole or empty."""
        durable_file(self._path, self._first)
        self._file = os.open(self._path, os.O_RDWR)

    @property
    def _first(self) -> bytes:
        return sectors_of(self._task.seed, 0, 0, self._task.count * _PART_SECTORS)

    def carry_out(self, number: int) -> None:
        """Change one part."""
        self._change(number)
        AFTER[self._task.after](self._file)

    def _change(self, number: int) -> None:
        raise NotImplementedError

    def _parts(self) -> list[bytes]:
        data = content(self._path)
        return [data[begin : begin + _PART_BYTES] for begin in range(0, len(data), _PART_BYTES)]

    def _is_untouched(self, index: int, part: bytes) -> bool:
        return authors(self._task.seed, index * _PART_SECTORS, part) == {0}


class Truncate(_Parts):
    """A file that loses its last part."""

    def _change(self, number: int) -> None:
        os.ftruncate(self._file, (self._task.count - number) * _PART_BYTES)

    def inventory(self) -> Inventory | Finding:
        """Return the parts that are gone; damage if what is left is not what was there."""
        if not os.path.exists(self._path):
            return Inventory(frozenset())
        parts = self._parts()
        wrong = [index for index, part in enumerate(parts) if not self._is_untouched(index, part)]
        if wrong:
            return Finding(FindingKind.FOREIGN, detail=f"part {wrong[0]} of {len(parts)} is not what was written there")
        return Inventory(frozenset(range(1, self._task.count - len(parts) + 1)))


class Fallocate(_Parts):
    """A file that gets space, one part after another."""

    @property
    def _first(self) -> bytes:
        return b""

    def _change(self, number: int) -> None:
        os.posix_fallocate(self._file, (number - 1) * _PART_BYTES, _PART_BYTES)

    def inventory(self) -> Inventory | Finding:
        """Return the parts that are there; damage if one is not zeros, since that is somebody else's data."""
        parts = self._parts()
        if any(any(part) for part in parts):
            return Finding(FindingKind.FOREIGN, detail="allocated space holds what nobody wrote there")
        whole = [number for number, part in enumerate(parts, 1) if len(part) == _PART_BYTES]
        return Inventory(frozenset(whole))


class Punch(_Parts):
    """A file that gets holes, one after another."""

    def _change(self, number: int) -> None:
        punch(self._file, (number - 1) * _PART_BYTES, _PART_BYTES)

    def inventory(self) -> Inventory | Finding:
        """Return the holes; a part that is neither a hole nor unchanged counts as a hole in part."""
        have, torn = set(), {}
        for index, part in enumerate(self._parts()):
            if not any(part):
                have.add(index + 1)
            elif not self._is_untouched(index, part):
                torn[index + 1] = "is neither a hole nor what was there"
        return Inventory(frozenset(have), torn)
