"""Patterns that write into one file: at its end, in place, and through a memory map."""

from __future__ import annotations

import mmap
import os
from itertools import count, takewhile

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.files.calls import AFTER, FLAGS, content, durable_file, whole
from rig.engines.files.pattern import PatternTask
from rig.engines.files.sectors import NOBODY, SECTOR_BYTES, authors, sectors_of

# Three sectors, so that most records share a block with another.
_RECORD_SECTORS = 3
_RECORD_BYTES = _RECORD_SECTORS * SECTOR_BYTES
# Two blocks, so that a power cut may keep one without the other.
_SLOT_SECTORS = 16
_SLOT_BYTES = _SLOT_SECTORS * SECTOR_BYTES
_SLOT_COUNT = 8


class Log:
    """Records one after another; a record that is cut short or has wrong content is there in part."""

    def __init__(self, task: PatternTask, name: str = "log") -> None:
        self._task = task
        self._path = task.path(name)
        self._file = -1

    def prepare(self) -> None:
        """Make an empty file."""
        durable_file(self._path, b"")
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | FLAGS.get(self._task.after, 0))

    def carry_out(self, number: int) -> None:
        """Append a record."""
        self.write(number)
        AFTER[self._task.after](self._file)

    def write(self, number: int) -> None:
        """Append a record, without the call after it."""
        data = self._record(number)
        whole(os.write(self._file, data), data)

    def inventory(self) -> Inventory:
        """Return the records."""
        data, have, torn = content(self._path), set(), {}
        for number in range(1, -(-len(data) // _RECORD_BYTES) + 1):
            part, due = data[(number - 1) * _RECORD_BYTES :][:_RECORD_BYTES], self._record(number)
            if part == due:
                have.add(number)
            else:
                torn[number] = _difference(part, due)
        return Inventory(frozenset(have), torn)

    def _record(self, number: int) -> bytes:
        return sectors_of(self._task.seed, number, (number - 1) * _RECORD_SECTORS, _RECORD_SECTORS)


class Slots:
    """Slots of two blocks that are written again and again, one after another."""

    def __init__(self, task: PatternTask) -> None:
        self._task = task
        self._path = task.path("slots")
        self._file = -1

    def prepare(self) -> None:
        """Make a file of slots that no transaction has written."""
        durable_file(self._path, sectors_of(self._task.seed, 0, 0, _SLOT_COUNT * _SLOT_SECTORS))
        self._file = os.open(self._path, os.O_RDWR | FLAGS.get(self._task.after, 0))

    def carry_out(self, number: int) -> None:
        """Write a slot."""
        data, slot = self._slot(number)
        whole(os.pwrite(self._file, data, slot * _SLOT_BYTES), data)
        AFTER[self._task.after](self._file)

    def inventory(self) -> Inventory | Finding:
        """Return what the slots show: a transaction is there if its slot holds it or a later transaction."""
        data = content(self._path)
        have: set[int] = set()
        torn: dict[int, str] = {}
        if len(data) not in {0, _SLOT_COUNT * _SLOT_BYTES}:
            return Finding(FindingKind.CORRUPT, detail=f"the file has {len(data)} bytes, which nobody made so")
        if not data:
            return Inventory(frozenset())
        for slot in range(_SLOT_COUNT):
            writers = authors(self._task.seed, slot * _SLOT_SECTORS, data[slot * _SLOT_BYTES :][:_SLOT_BYTES])
            # Only transactions of this slot can have written here.
            if NOBODY in writers or any(number and self._slot_of(number) != slot for number in writers):
                return Finding(FindingKind.FOREIGN, detail=f"slot {slot} holds what no transaction wrote there")
            have.update(range(slot + 1, min(writers) + 1, _SLOT_COUNT))
            if len(writers) > 1:
                torn[max(writers)] = f"slot {slot} holds parts of transactions {sorted(writers)}"
        return Inventory(frozenset(have), torn)

    def _slot(self, number: int) -> tuple[bytes, int]:
        slot = self._slot_of(number)
        return sectors_of(self._task.seed, number, slot * _SLOT_SECTORS, _SLOT_SECTORS), slot

    @staticmethod
    def _slot_of(number: int) -> int:
        return (number - 1) % _SLOT_COUNT


class MappedSlots(Slots):
    """The same slots, written through a memory map."""

    def prepare(self) -> None:
        """Make the file and map it."""
        super().prepare()
        self._map = mmap.mmap(self._file, 0)

    def carry_out(self, number: int) -> None:
        """Store into a slot, and call msync if the pattern says so."""
        data, slot = self._slot(number)
        begin = slot * _SLOT_BYTES
        self._map[begin : begin + _SLOT_BYTES] = data
        if self._task.after == "msync":
            self._map.flush(begin, _SLOT_BYTES)


class Pair:
    """Two logs whose order matters: a record is made durable in the first before it is written to the second."""

    def __init__(self, task: PatternTask) -> None:
        self._first, self._second = Log(task, "first"), Log(task, "second")

    def prepare(self) -> None:
        """Make both."""
        self._first.prepare()
        self._second.prepare()

    def carry_out(self, number: int) -> None:
        """Append a record to both; nothing is called after the second."""
        self._first.carry_out(number)
        self._second.write(number)

    def inventory(self) -> Inventory | Finding:
        """Return the transactions that both files have up to the first gap; what only the second has is damage.

        The second file by itself has no promise, so a gap in it breaks nothing.
        """
        first, second = self._first.inventory(), self._second.inventory()
        seen = second.have | second.torn.keys()
        if early := sorted(seen - first.have):
            words = f"the second file has transaction {early[0]} or a part of it, the first has not"
            return Finding(FindingKind.HOLE, detail=words)
        have = frozenset(takewhile(second.have.__contains__, count(1)))
        missing = dict.fromkeys(first.have - have, "only the first file has it")
        late = dict.fromkeys(seen - have, "the second file has it after a gap, or a part of it")
        return Inventory(have, {**missing, **late, **first.torn})


def _difference(part: bytes, due: bytes) -> str:
    if due.startswith(part):
        return f"ends after {len(part)} of {len(due)} bytes"
    return "is zeros" if not any(part) else "holds something else"
