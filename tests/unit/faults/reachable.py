"""Which contents an honest disk can leave after a cut, by kind, and how many of them a power cut makes.

Random histories of at most 6 writes, 2 FUA writes and 2 flushes, by the brute-force model of
`tests.unit.faults.requests`. The kind of a content is the simplest way to leave it. `python -m
tests.unit.faults.reachable 3000` prints the table of docs/findings/measurements-of-the-rig.md. It leaves out a history
whose device does not end as a replay of its log, because such a recording is void.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress, product
from pathlib import Path

from rig.faults import Fault, WriteLog
from rig.faults.log.submissions import attach
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Content, Op, content_of, everything, marks_claimed, rebuild
from tests.unit.faults.requests import Requests, work

_SECTORS = 4
_WRITES = {"write": 6, "fua": 2}


class Kind(IntEnum):
    """What it takes to leave a content, the simplest first."""

    LOST = 0
    SUBSET = 1
    OLDER = 2
    BEFORE_FUA = 3
    PARTED = 4
    FLYING = 5
    FUA_BESIDE = 6

    @property
    def text(self) -> str:
        """Return the kind in words."""
        return _TEXTS[self]


_TEXTS = (
    "nothing unflushed landed",
    "a subset of the batch landed",
    "of overlapping unflushed writes only the older landed",
    "of the batch something landed before all FUA writes of its epoch",
    "a flush in flight parted two batches",
    "a plain write in flight landed",
    "a FUA write in flight landed beside others",
)


@dataclass
class Watched(Requests):
    """A disk at work that remembers for each moment what had been done."""

    # At each moment: the writes not durable, each with whether it was in flight and whether a FLUSH in flight took it.
    open: list[list[tuple[Op, bool, bool]]] = field(default_factory=list)
    is_flushing: list[bool] = field(default_factory=list)
    # FUA writes and flushes completed.
    counts: list[tuple[int, int]] = field(default_factory=list)

    def _remember(self) -> None:
        super()._remember()
        is_flushing = any(op.kind == "flush" for op in self.flying)
        taken = set().union(*(ranks for _, ranks in self.taken.values()))
        found = [(op, False, rank in taken) for rank, op in enumerate(self.completed) if rank not in self.durable]
        self.open.append(found + [(op, True, False) for op in self.flying if op.kind != "flush"])
        self.is_flushing.append(is_flushing)
        kinds = Counter(op.kind for op in self.log)
        self.counts.append((kinds["fua"], kinds["flush"]))

    def kinds(self) -> dict[Content, Kind]:
        """Return the kind of every content that a cut can leave with the most marks seen before it."""
        most, found = self.contents(), dict[Content, Kind]()
        for number, moment in enumerate(self.moments):
            for content, kind in self._ways(number):
                if moment.marks_seen == most[content]:
                    found[content] = min(kind, found.get(content, kind))
        return found

    def _ways(self, number: int) -> Iterator[tuple[Content, Kind]]:
        fuas, flushes = self.counts[number]
        has_fua_to_come = any(fuas < more and flushes == same for more, same in self.counts[number:])
        writes, is_open = self.moments[number].writes, self.open[number]
        for choice in product([False, True], repeat=len(is_open)):
            landed = list(compress(is_open, choice))
            lands = iter(choice)
            content = [0] * DISK_SECTORS
            for op, is_durable in writes:
                if is_durable or next(lands):
                    for sector, value in op.sectors().items():
                        content[sector] = value
            kind = max(_features(is_open, choice), default=Kind.LOST)
            if has_fua_to_come and any(not is_flying for _, is_flying, _ in landed):
                kind = max(kind, Kind.BEFORE_FUA)
            if self.is_flushing[number] and any(not is_flying and not was_taken for _, is_flying, was_taken in landed):
                kind = max(kind, Kind.PARTED)
            yield tuple(content), kind


def _features(is_open: list[tuple[Op, bool, bool]], choice: tuple[bool, ...]) -> Iterator[Kind]:
    """Yield what the choice itself takes, whatever the disk was doing."""
    landed = list(compress(is_open, choice))
    for rank, (op, is_flying, _) in enumerate(is_open):
        if not choice[rank]:
            continue
        if is_flying and op.kind == "fua":
            # Alone it is what the next moment has without it.
            yield Kind.FUA_BESIDE if len(landed) > 1 else Kind.LOST
            continue
        yield Kind.FLYING if is_flying else Kind.SUBSET
        newer = [one for (one, _, _), has_landed in zip(is_open[rank + 1 :], choice[rank + 1 :], strict=True)
                 if not has_landed]  # fmt: skip
        if any(set(op.sectors()) & set(one.sectors()) for one in newer):
            yield Kind.OLDER


@dataclass
class Table:
    """For each kind: contents that can be reached, those that a power cut makes, those that the log alone gives."""

    reached: Counter[Kind] = field(default_factory=Counter)
    made: Counter[Kind] = field(default_factory=Counter)
    by_log_alone: Counter[Kind] = field(default_factory=Counter)
    # Contents made that cannot be reached with as many marks; by the log alone that happens where a FLUSH overtook one.
    wrong_count: int = 0
    wrong_by_log_alone_count: int = 0

    def add(self, disk: Watched, log: WriteLog) -> None:
        """Count the contents of one history; the log alone gives none of a void one. Leave the account attached."""
        kinds, marks = disk.kinds(), disk.contents()
        self.reached.update(kinds.values())
        for is_known, counter in ((False, self.by_log_alone), (True, self.made)):
            if is_known:
                attach(bytes(disk.records), log)
            if is_void(disk, log):
                continue
            made = {rebuild(log, state): marks_claimed(log, state) for state in everything(Fault.POWERCUT, log).states}
            counter.update(kind for content, kind in kinds.items() if made.get(content) == marks[content])
            wrong_count = sum(seen > marks.get(content, -1) for content, seen in made.items())
            self.wrong_count += wrong_count * is_known
            self.wrong_by_log_alone_count += wrong_count * (not is_known)


def tables(history_count: int, seed: int, place: Path) -> tuple[Table, Table, int]:
    """Return the table of histories, the same of those with a FUA write over an unflushed one, and the void ones."""
    chance = random.Random(seed)
    plain, with_older, void_count = Table(), Table(), 0
    for _ in range(history_count):
        disk = Watched()
        work(disk, chance.choice, chance.randint(1, 22), _SECTORS, _WRITES)
        disk.end(place)
        with WriteLog.open(place) as log:
            (with_older if disk.has_older_plain_write() else plain).add(disk, log)
            void_count += is_void(disk, log)
    return plain, with_older, void_count


def is_void(disk: Requests, log: WriteLog) -> bool:
    """Whether a replay of the log, as far as it is known, does not give the device."""
    return disk.view() != content_of(log.replay(log.entry_count, DISK_SECTORS * SECTOR))


def _lines(history_count: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        plain, with_older, void_count = tables(history_count, 1, Path(folder) / "log")
    wrong = [one.wrong_count for one in (plain, with_older)]
    by_log_alone = [one.wrong_by_log_alone_count for one in (plain, with_older)]
    yield f"{history_count} histories, {void_count} of them void; contents made that cannot be reached: {sum(wrong)}"
    yield f"by the log alone: {sum(by_log_alone)}"
    yield "| kind | reachable | by the log alone | with the block trace | FUA over an unflushed write: both |"
    yield "|---|---|---|---|---|"
    for kind in Kind:
        row = (plain.reached[kind], plain.by_log_alone[kind], plain.made[kind])
        yield f"| {kind.text} | {' | '.join(map(str, row))} | {with_older.reached[kind]}, {with_older.made[kind]} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in _lines(int(sys.argv[1])))
