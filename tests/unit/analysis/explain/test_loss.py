"""The smallest loss of a state, its first and its last cut, against a database that is read off the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig.analysis.explain.loss import Loss, Placed, Searcher
from rig.campaign.verdicts import verdict
from rig.contract.errors import UsageError
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import Verdict, VerdictKind
from rig.faults import CrashState, Logs, WriteLog, everything_unflushed_lost
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline
from tests.unit.faults.log.test_log import FLUSH, FUA, MARK, Entry, encode

DISK_BYTES = 64 * 512
Reads = Callable[[bytes], Finding]


def mark(text: str) -> Entry:
    return Entry(MARK, text=text)


def write(sector: int, fill: int) -> Entry:
    return Entry(0, sector, 1, fill)


class Bench:
    """Judges states by what their disks hold."""

    def __init__(self, logs: Logs, reads: Reads) -> None:
        self.logs, self.timeline, self.reads = logs, Timeline(logs.first.marks), reads
        self.judged: list[str] = []

    def judge(self, placed: Sequence[Placed]) -> list[Verdict]:
        self.judged += [state.id for state, _ in placed]
        return [self.verdict(state, entry) for state, entry in placed]

    def verdict(self, state: CrashState, entry: int | None) -> Verdict:
        log = self.logs.first
        disk = bytearray(log.replay(state.base_end, DISK_BYTES).tobytes())
        for extent in state.extents(log):
            begin = extent.device_offset_bytes
            disk[begin : begin + extent.length_bytes] = extent.data(log)
        at = state.instant if entry is None else entry
        return verdict(Cut("scenario", state, "content", at, 0), self.reads(bytes(disk)), self.timeline)

    def loss(self, state: CrashState) -> Loss:
        return Searcher(self.logs, self.timeline, self.judge, 60).loss(state, self.verdict(state, None))


@contextmanager
def bench(folder: Path, entries: Sequence[Entry], reads: Reads) -> Iterator[Bench]:
    (folder / "log").write_bytes(encode([*entries, mark("dm-log-writes-end")]))
    with WriteLog.open(folder / "log") as log:
        yield Bench(Logs(log), reads)


def prefix(disk: bytes) -> Finding:
    """Transaction n is there if the sector n has bytes."""
    count = next(number for number in range(9) if not disk[(number + 1) * 512])
    return Finding(FindingKind.PREFIX, count, "", {})


# The second transaction is acknowledged before it is flushed; sectors from 20 on are of no consequence.
UNSYNCED = [
    write(20, 9), Entry(FLUSH), mark("setup-1000"),
    mark("begin-1-1100"), write(1, 1), Entry(FLUSH), mark("ack-1-1300"),
    mark("begin-2-1400"), mark("ack-2-1500"), write(21, 2), write(2, 2), write(22, 2), Entry(FLUSH),
    mark("begin-3-1600"), write(3, 3), Entry(FLUSH), mark("ack-3-1800"), mark("end-1900"),
]  # fmt: skip


def test_what_a_database_had_shown_when_a_later_life_began_can_be_lost_from_then_on(tmp_path: Path) -> None:
    life = [
        write(1, 1), Entry(FLUSH), mark("recovered-2-1000"),
        mark("begin-3-1100"), mark("ack-3-1300"), write(2, 2), write(3, 3), Entry(FLUSH), mark("end-1900"),
    ]  # fmt: skip
    with bench(tmp_path, life, prefix) as of:
        loss = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 7))
        assert (2, 1) == (loss.subject, loss.verdict.recovered)
        # The mark of what it has shown is the entry 2.
        assert 3 == loss.first_instant.entry


def test_the_one_write_that_was_not_flushed_is_enough_to_be_lost(tmp_path: Path) -> None:
    with bench(tmp_path, UNSYNCED, prefix) as of:
        state = everything_unflushed_lost(of.logs.first, of.logs.epochs, 12)
        found = of.loss(state)
        entry = next(rank for rank, one in enumerate(UNSYNCED) if (one.sector, one.flags) == (2, 0))
        assert [{entry}] == [{atom.entry for atom in one} for one in found.lost.sets]
        assert (frozenset(),) == found.landed.sets
        assert 2 == found.subject
        assert VerdictKind.LOST_SUFFIX is of.verdict(found.lost.state, None).kind
        assert found.is_complete


def test_the_loss_can_begin_with_the_acknowledgement_and_ends_with_the_flush(tmp_path: Path) -> None:
    with bench(tmp_path, UNSYNCED, prefix) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 12))
        assert ("ack-2-1500", 12) == (UNSYNCED[found.first_instant.entry - 1].text, found.last_instant.entry)
        assert "after transaction 2 was acknowledged" in found.first_instant.phase


# The write of the second transaction leaves the page cache two flushes later.
LATE = [
    write(20, 9), Entry(FLUSH), mark("setup-1000"),
    mark("begin-1-1100"), write(1, 1), Entry(FLUSH), mark("ack-1-1300"),
    mark("begin-2-1400"), mark("ack-2-1500"), write(21, 2), Entry(FLUSH),
    mark("tick-1550"), write(22, 2), Entry(FLUSH), write(23, 2), write(2, 2), Entry(FLUSH), mark("end-1900"),
]  # fmt: skip


def test_a_write_that_had_not_reached_the_disk_is_found_at_the_last_cut(tmp_path: Path) -> None:
    with bench(tmp_path, LATE, prefix) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 10))
        assert (frozenset(),) == found.lost.sets
        assert found.last
        assert found.culprit is found.last
        assert [{15}] == [{atom.entry for atom in one} for one in found.last.sets]
        assert 16 == found.last_instant.entry


def torn(disk: bytes) -> Finding:
    """Damaged if the sector 2 was overwritten before the sector 1 was saved."""
    kind = FindingKind.TORN if disk[2 * 512] and not disk[512] else FindingKind.PREFIX
    return Finding(kind, None if kind is FindingKind.TORN else 0, "", {})


DISORDER = [
    write(20, 9), Entry(FLUSH), mark("setup-1000"), mark("begin-1-1100"),
    write(24, 1), write(1, 1), write(25, 1), write(2, 1), write(26, 1), Entry(FLUSH), mark("ack-1-1300"),
    mark("end-1900"),
]  # fmt: skip


def test_writes_in_the_wrong_order_are_told_from_both_sides(tmp_path: Path) -> None:
    with bench(tmp_path, DISORDER, torn) as of:
        found = of.loss(of.logs.parse("e9.f0.w4,6-8"))
        assert [{5}] == [{atom.entry for atom in one} for one in found.lost.sets]
        assert [{7}] == [{atom.entry for atom in one} for one in found.landed.sets]
        assert found.last is None
        assert 0 == found.subject


# Damaged from the flush after sector 2 until the FUA write of sector 1; sectors from 20 on are of no consequence.
WINDOW = [
    write(20, 9), Entry(FLUSH), mark("setup-1000"), mark("begin-1-1100"), write(21, 1), write(2, 1), Entry(FLUSH),
    mark("ack-1-1300"), write(22, 1), Entry(FLUSH), mark("begin-2-1400"), write(23, 2), Entry(FLUSH),
    Entry(FUA, 1, 1, 1), write(24, 2), write(25, 2), Entry(FLUSH), mark("ack-2-1500"), mark("end-1900"),
]  # fmt: skip


def test_what_the_cut_can_neither_lose_nor_keep_is_found_at_both_ends_of_the_damage(tmp_path: Path) -> None:
    with bench(tmp_path, WINDOW, torn) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 9))
        assert [frozenset()] == [*found.lost.sets] == [*found.landed.sets]
        assert found.culprit is found.last
        assert [{13}] == [{atom.entry for atom in each} for each in found.culprit.sets]
        assert found.premise is found.first
        assert [{5}] == [{atom.entry for atom in each} for each in found.premise.sets]
        assert "during the commit of transaction 1" in found.first_instant.phase
        assert "during the commit of transaction 2" in found.last_instant.phase
        assert all(state == of.logs.parse(state).id for state in of.judged)


def test_a_damage_that_begins_with_a_fua_write_is_told_by_it(tmp_path: Path) -> None:
    entries = [*WINDOW[:4], Entry(FUA, 2, 1, 1), write(21, 1), *WINDOW[6:]]
    with bench(tmp_path, entries, torn) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 9))
        assert [{4}] == [{atom.entry for atom in each} for each in found.premise.sets]


def test_a_damage_that_never_ends_has_no_last_cut(tmp_path: Path) -> None:
    entries = [*WINDOW[:13], Entry(FUA, 26, 1, 2), *WINDOW[14:]]
    with bench(tmp_path, entries, torn) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 9))
        assert found.last is None
        assert [{5}] == [{atom.entry for atom in each} for each in found.premise.sets]


def test_every_state_that_is_judged_is_one_that_the_log_allows(tmp_path: Path) -> None:
    for entries, reads, cut in ((UNSYNCED, prefix, 12), (LATE, prefix, 10)):
        with bench(tmp_path, entries, reads) as of:
            of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, cut))
            assert of.judged
            for state in of.judged:
                assert state == of.logs.parse(state).id


def test_a_state_that_lost_nothing_has_nothing_to_explain(tmp_path: Path) -> None:
    with bench(tmp_path, UNSYNCED, prefix) as of, pytest.raises(UsageError, match="nothing to explain"):
        of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 4))


def test_a_later_transaction_that_is_lost_too_does_not_count(tmp_path: Path) -> None:
    # The third transaction is acknowledged before the write of the second is flushed, and written much later.
    entries = [
        *UNSYNCED[:9], mark("begin-3-1520"), mark("ack-3-1540"), write(2, 2), Entry(FLUSH), write(21, 3), Entry(FLUSH),
        write(3, 3), Entry(FLUSH), mark("end-1900"),
    ]  # fmt: skip
    with bench(tmp_path, entries, prefix) as of:
        found = of.loss(everything_unflushed_lost(of.logs.first, of.logs.epochs, 12))
        assert (2, 12) == (found.subject, found.last_instant.entry)
