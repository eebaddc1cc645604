"""Crash states against a brute-force model of a disk with a volatile cache.

The model runs writes, FUA writes, flushes that take time, and marks; it remembers at every moment which contents a cut
can leave and how many marks the caller has seen, and it emits the log that dm-log-writes would have written. Contents
are tuples of one number a cell of 512 bytes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from faults import (
    ContentIndex,
    CrashState,
    Epoch,
    Extent,
    Fault,
    Plan,
    WriteLog,
    base_extents,
    epochs,
    everything_unflushed_lost,
    parse_state,
    plan,
)
from faults.state import Draw, landable, make_state

CELL = 512
DISK_CELLS = 32

Content = tuple[int, ...]


@dataclass(frozen=True)
class Op:
    kind: str
    cell: int = 0
    count: int = 0
    fill: int = 0

    def cells(self) -> dict[int, int]:
        """What is written: a fill of 0 is zeros, any other gives each cell of the write its own value."""
        return {self.cell + rank: (self.fill * 32 + rank + 1 if self.fill else 0) for rank in range(self.count)}


@dataclass(frozen=True)
class Moment:
    """A moment at which the power may go: completed writes in order, how many must be there, and the marks seen."""

    writes: tuple[tuple[Op, bool], ...]
    marks_seen: int

    def versions(self, unit_cells: int) -> list[list[tuple[int, ...]]]:
        """Return for each unit of the disk its possible contents."""
        found = []
        for begin in range(0, DISK_CELLS, unit_cells):
            possible = {(0,) * unit_cells}
            for op, is_durable in self.writes:
                cells = op.cells()
                landed = {
                    tuple(cells.get(begin + rank, old) for rank, old in enumerate(version)) for version in possible
                }
                possible = landed if is_durable else possible | landed
            found.append(sorted(possible))
        return found

    def whole_contents(self) -> set[Content]:
        """Return every content if writes land whole or not at all."""
        possible = {(0,) * DISK_CELLS}
        for op, is_durable in self.writes:
            cells = op.cells()
            landed = {tuple(cells.get(cell, old) for cell, old in enumerate(content)) for content in possible}
            possible = landed if is_durable else possible | landed
        return possible


@dataclass
class Disk:
    """A disk with a volatile cache under dm-log-writes; FLUSH takes time, FUA and other writes complete at once."""

    order: list[Op] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    unlogged: list[Op] = field(default_factory=list)
    in_flush: tuple[list[Op], set[int]] | None = None
    log: list[Op] = field(default_factory=list)
    marks_seen: int = 0
    moments: list[Moment] = field(default_factory=list)

    def run(self, ops: list[Op]) -> None:
        self._remember()
        for op in ops:
            self._step(op)
            self._remember()
        if self.in_flush:
            self._step(Op("flush-end"))
            self._remember()
        self.log += [*self.unlogged, Op("mark")]

    def view(self) -> Content:
        """What a reader of the disk sees without a cut."""
        return next(iter(Moment(tuple((op, True) for op in self.order), 0).whole_contents()))

    def _step(self, op: Op) -> None:
        if op.kind == "mark":
            self.marks_seen += 1
            self.log.append(op)
        elif op.kind == "write":
            self.order.append(op)
            self.unlogged.append(op)
        elif op.kind == "discard":
            self.unlogged.append(op)
        elif op.kind == "fua":
            self._remember(in_flight=op)
            self.durable.add(len(self.order))
            self.order.append(op)
            self.log.append(op)
        elif op.kind == "flush-begin" and self.in_flush is None:
            self.in_flush = (self.unlogged, set(range(len(self.order))))
            self.unlogged = []
        elif op.kind == "flush-end" and self.in_flush is not None:
            taken, now_durable = self.in_flush
            self.durable |= now_durable
            self.log += [*taken, Op("flush")]
            self.in_flush = None

    def _remember(self, in_flight: Op | None = None) -> None:
        writes = [(op, rank in self.durable) for rank, op in enumerate(self.order)]
        writes += [(in_flight, False)] if in_flight else []
        self.moments.append(Moment(tuple(writes), self.marks_seen))


FLAGS = {"write": 0, "flush": 1, "fua": 2, "discard": 4, "mark": 8}


def emit(path: Path, log: list[Op], sector_cells: int) -> None:
    sector_bytes = sector_cells * CELL
    parts = [struct.pack("<QQQI", 0x6A736677736872, 1, len(log), sector_bytes).ljust(sector_bytes, b"\0")]
    for index, op in enumerate(log):
        text = b"ack" if op.kind == "mark" else b""
        # The FLUSH split off from a FUA write keeps the FUA flag.
        flags = FLAGS["flush"] | FLAGS["fua"] if op.kind == "flush" and index % 2 else FLAGS[op.kind]
        header = struct.pack("<QQQQ", op.cell // sector_cells, op.count // sector_cells, flags, len(text))
        parts.append((header + text).ljust(sector_bytes, b"\0"))
        if op.kind in {"write", "fua"}:
            parts += [struct.pack("<I", value) * (CELL // 4) for value in op.cells().values()]
    path.write_bytes(b"".join(parts))


def content_of(device: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Content:
    words = device.view("<u4").reshape(DISK_CELLS, -1)
    assert (words == words[:, :1]).all()
    return tuple(words[:, 0].tolist())


def apply(device: np.ndarray[tuple[int], np.dtype[np.uint8]], file: bytes, extents: list[Extent]) -> None:
    for extent in extents:
        source = file[extent.source_offset_bytes : extent.source_offset_bytes + extent.length_bytes]
        begin = extent.device_offset_bytes
        device[begin : begin + extent.length_bytes] = np.frombuffer(source, dtype=np.uint8)


def rebuild(log: WriteLog, state: CrashState) -> Content:
    """The content as a verifier builds it: the base, then the state's extents, from the bytes of the file."""
    device = np.zeros(DISK_CELLS * CELL, dtype=np.uint8)
    file = log.path.read_bytes()
    apply(device, file, base_extents(log, 0, state.base_end // 2))
    apply(device, file, base_extents(log, state.base_end // 2, state.base_end))
    apply(device, file, state.extents(log))
    return content_of(device)


def marks_claimed(log: WriteLog, state: CrashState) -> int:
    return sum(mark.entry_index < state.instant for mark in log.marks if mark.entry_index < log.entry_count - 1)


@st.composite
def some_ops(
    draw: st.DrawFn, cells: int, fua_from: int, count_max: int, *, writes_max: int, sector_cells: int = 1
) -> list[Op]:
    """Draw a run of the disk; FUA writes start at cell `fua_from`, others end before it unless it is 0."""
    ops: list[Op] = []
    pending, in_flush = 0, False
    for _ in range(draw(st.integers(0, 14))):
        kinds = ["write"] * 3 * (pending < writes_max) + ["fua", "fua", "mark", "flush-begin", "flush-end", "flush-end"]
        kind = draw(st.sampled_from([*kinds, "discard"]))
        op = Op(kind)
        if kind in {"write", "fua", "discard"}:
            low, high = (fua_from, cells) if kind == "fua" else (0, fua_from or cells)
            sectors = (high - low) // sector_cells
            first = draw(st.integers(0, sectors - 1))
            count = draw(st.integers(1, min(count_max, sectors - first)))
            op = Op(kind, low + first * sector_cells, count * sector_cells, draw(st.sampled_from([0, 1, 2, 2, 3])))
        # A FLUSH takes what waits, unless one is in flight already.
        pending = 0 if kind == "flush-begin" and not in_flush else pending + (kind == "write")
        in_flush = kind == "flush-begin" or (in_flush and kind != "flush-end")
        ops.append(op)
    return ops


def run_of(path: Path, ops: list[Op], sector_cells: int = 1) -> Disk:
    disk = Disk()
    disk.run(ops)
    emit(path, disk.log, sector_cells)
    return disk


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states") / "log"


def everything(fault: Fault, log: WriteLog, first_entry: int = -1) -> Plan:
    return plan(fault, log, epochs(log), first_entry=first_entry, states_max=10**6, seed=1)


def passes_self_check(log: WriteLog, disk: Disk) -> bool:
    return disk.view() == content_of(log.replay(log.entry_count, DISK_CELLS * CELL))


@settings(deadline=None, max_examples=150)
@given(ops=some_ops(4, 0, 3, writes_max=5))
def test_every_powercut_state_is_reachable_with_its_acknowledgements_seen(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        reachable: dict[Content, int] = {}
        for moment in disk.moments:
            for content in moment.whole_contents():
                reachable[content] = max(reachable.get(content, 0), moment.marks_seen)
        for state in everything(Fault.POWERCUT, log).states:
            assert reachable.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id


@settings(deadline=None, max_examples=100)
@given(data=st.data(), sector_cells=st.sampled_from([1, 8]))
def test_every_torn_state_is_reachable_with_its_acknowledgements_seen(
    place: Path, data: st.DataObject, sector_cells: int
) -> None:
    ops = data.draw(some_ops(DISK_CELLS, 0, 12 if sector_cells == 1 else 2, writes_max=4, sector_cells=sector_cells))
    disk = run_of(place, ops, sector_cells)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        versions = {unit: [(m.versions(unit), m.marks_seen) for m in disk.moments] for unit in (1, 8)}
        chosen = plan(Fault.TORN, log, epochs(log), first_entry=-1, states_max=60, seed=1)
        for state in chosen.states:
            content, claimed = rebuild(log, state), marks_claimed(log, state)
            sizes = {tear.unit_bytes for tear in state.tears} | ({state.draw.unit_bytes} if state.draw else set())
            unit = 8 if sizes == {4096} else 1
            parts = [content[begin : begin + unit] for begin in range(0, DISK_CELLS, unit)]
            assert any(
                seen >= claimed and all(part in possible for part, possible in zip(parts, units, strict=True))
                for units, seen in versions[unit]
            ), state.id


def provable(disk: Disk, *, is_torn: bool) -> Iterator[tuple[Content, int]]:
    """Yield what GROUND.md calls provable, with the number of marks before the cut, straight from the emitted log."""
    log = disk.log
    durable: list[Op] = []
    marks = 0
    flushes = [index for index, op in enumerate(log) if op.kind == "flush"]
    begin = 0
    for end in [*flushes, len(log) - 1]:
        part = log[begin:end]
        for op in part:
            if op.kind == "fua":
                moment = Moment((*((done, True) for done in durable), (op, False)), marks)
                yield from ((content, marks) for content in (_units(moment) if is_torn else moment.whole_contents()))
                durable.append(op)
            marks += op.kind == "mark"
        batch = [op for op in part if op.kind == "write"]
        moment = Moment((*((done, True) for done in durable), *((op, False) for op in batch)), marks)
        yield from ((content, marks) for content in (_units(moment) if is_torn else moment.whole_contents()))
        durable += batch
        begin = end + 1


def _units(moment: Moment) -> Iterator[Content]:
    for choice in itertools.product(*moment.versions(1)):
        yield tuple(value for (value,) in choice)


def check_complete(place: Path, ops: list[Op], fault: Fault) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        found = everything(fault, log)
        expected: dict[Content, int] = {}
        for content, seen in provable(disk, is_torn=fault == Fault.TORN):
            expected[content] = max(expected.get(content, 0), seen)
        assert expected == {rebuild(log, state): marks_claimed(log, state) for state in found.states}
        assert len(expected) == len(found.states)
        assert (len(epochs(log)), 0) == (found.epoch_count, found.epochs_sampled)


@settings(deadline=None, max_examples=100)
@given(ops=some_ops(6, 4, 3, writes_max=5))
def test_a_powercut_plan_without_limit_holds_every_provable_content(place: Path, ops: list[Op]) -> None:
    check_complete(place, ops, Fault.POWERCUT)


@settings(deadline=None, max_examples=60)
@given(ops=some_ops(7, 4, 2, writes_max=3))
def test_a_torn_plan_without_limit_holds_every_provable_content(place: Path, ops: list[Op]) -> None:
    check_complete(place, ops, Fault.TORN)


@settings(deadline=None, max_examples=60)
@given(ops=some_ops(6, 0, 3, writes_max=4), fault=st.sampled_from(Fault), states_max=st.integers(1, 40), data=st.data())
def test_ids_give_the_states_back_and_a_plan_is_sorted_and_repeatable(
    place: Path, ops: list[Op], fault: Fault, states_max: int, data: st.DataObject
) -> None:
    disk = run_of(place, ops)
    first_entry = data.draw(st.integers(-1, len(disk.log)))
    with WriteLog.open(place) as log:
        split = epochs(log)
        chosen = plan(fault, log, split, first_entry=first_entry, states_max=states_max, seed=3)
        assert chosen == plan(fault, log, split, first_entry=first_entry, states_max=states_max, seed=3)
        assert len(chosen.states) <= states_max
        assert list(chosen.states) == sorted(chosen.states, key=lambda state: (state.base_end, state.id))
        assert chosen.epoch_count == chosen.epochs_exhaustive + chosen.epochs_sampled
        assert chosen.epoch_count + chosen.epochs_doubtful == sum(epoch.end > first_entry for epoch in split)
        for state in chosen.states:
            assert first_entry < state.instant
            again = parse_state(state.id, log, split)
            assert again == state
            for name in ("epoch", "fua_count", "whole", "tears", "draw"):
                assert getattr(state, name) == getattr(again, name)
            assert state.id.isascii()
            assert not set(state.id) - set("abcdefghijklmnopqrstuvwxyz0123456789.,:-")


def any_states(split: tuple[Epoch, ...]) -> Iterator[CrashState]:
    for epoch in split:
        members = landable(epoch)
        for fua_count in range(len(epoch.fuas)):
            yield make_state(epoch, fua_count)
        for size in range(len(members) + 1):
            for whole in itertools.combinations(members, size):
                yield make_state(epoch, len(epoch.fuas), whole=whole)
        for seed, unit_bytes in itertools.product(range(4), (0, 512, 4096)):
            yield make_state(epoch, len(epoch.fuas), draw=Draw(seed, 50, unit_bytes))


@settings(deadline=None, max_examples=60)
@given(ops=some_ops(16, 0, 12, writes_max=4))
def test_digests_are_equal_exactly_where_the_contents_are(place: Path, ops: list[Op]) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        index = ContentIndex(log)
        pairs = {(index.digest(state), rebuild(log, state)) for state in any_states(epochs(log))}
        assert len(pairs) == len({digest for digest, _ in pairs}) == len({content for _, content in pairs})
        assert all(len(digest) == 32 for digest, _ in pairs)


@settings(deadline=None, max_examples=60)
@given(ops=some_ops(6, 0, 3, writes_max=4))
def test_all_unflushed_lost_is_the_durable_content_at_every_instant(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        for entry in range(log.entry_count + 1):
            state = everything_unflushed_lost(log, split, entry)
            assert state.unflushed_lost
            assert state.base_end <= entry <= state.instant
            last_flush = max((i for i in range(entry) if disk.log[i].kind == "flush"), default=-1)
            durable = [op for i, op in enumerate(disk.log[:entry]) if i < last_flush or op.kind == "fua"]
            writes = tuple((op, True) for op in durable if op.kind in {"write", "fua"})
            assert Moment(writes, 0).whole_contents() == {rebuild(log, state)}


def test_a_small_budget_is_spread_over_evenly_spaced_epochs(place: Path) -> None:
    ops = [op for n in range(40) for op in (Op("write", n % 30, 1, n + 1), Op("flush-begin"), Op("flush-end"))]
    run_of(place, ops)
    with WriteLog.open(place) as log:
        chosen = plan(Fault.POWERCUT, log, epochs(log), first_entry=-1, states_max=10, seed=1)
    assert [0, 4, 8, 12, 16, 20, 24, 28, 32, 36] == [state.epoch.number for state in chosen.states]
    assert (41, 0, 41) == (chosen.epoch_count, chosen.epochs_exhaustive, chosen.epochs_sampled)


@pytest.mark.parametrize(("fault", "state_count"), [(Fault.POWERCUT, 8), (Fault.TORN, 64)])
def test_an_epoch_is_exhaustive_only_if_all_its_states_were_taken(place: Path, fault: Fault, state_count: int) -> None:
    run_of(place, [Op("write", cell, 2, cell + 1) for cell in (0, 2, 4)])
    with WriteLog.open(place) as log:
        for states_max, exhaustive in ((state_count - 1, 0), (state_count, 1), (state_count + 1, 1)):
            chosen = plan(fault, log, epochs(log), first_entry=-1, states_max=states_max, seed=1)
            assert min(states_max, state_count) == len(chosen.states)
            assert (exhaustive, 1 - exhaustive) == (chosen.epochs_exhaustive, chosen.epochs_sampled)


def test_doubtful_epochs_are_counted_and_not_cut(place: Path) -> None:
    flush = [Op("flush-begin"), Op("flush-end")]
    run_of(place, [Op("write", 3, 1, 2), Op("fua", 3, 1, 1), *flush, Op("mark"), *flush, Op("write", 3, 1, 5), *flush])
    with WriteLog.open(place) as log:
        chosen = plan(Fault.POWERCUT, log, epochs(log), first_entry=-1, states_max=50, seed=1)
    assert (2, 2) == (chosen.epoch_count, chosen.epochs_doubtful)
    assert {0, 3} == {state.epoch.number for state in chosen.states}
    assert not any(state.whole for state in chosen.states)


@pytest.mark.parametrize("fault", Fault)
def test_a_large_batch_is_sampled_by_the_seed_up_to_the_budget(place: Path, fault: Fault) -> None:
    ops = [Op("write", n % 30, 2, n + 1) for n in range(300)]
    run_of(place, [*ops, Op("flush-begin"), Op("flush-end")])
    with WriteLog.open(place) as log:
        one, again, other = (
            plan(fault, log, epochs(log), first_entry=-1, states_max=200, seed=seed) for seed in (1, 1, 2)
        )
        assert (200, 1) == (len(one.states), one.epochs_sampled)
        assert one == again
        assert one != other
        assert max(len(state.id) for state in one.states) < 64
        for state in one.states:
            assert parse_state(state.id, log, epochs(log)) == state
        assert 200 == len({rebuild(log, state) for state in one.states})
        assert any(state.tears for state in one.states) is (fault == Fault.TORN)


def test_the_corners_of_a_large_batch_come_within_their_budget(place: Path) -> None:
    run_of(place, [Op("write", n, 1, n + 1) for n in range(10)])
    with WriteLog.open(place) as log:
        (tail,) = epochs(log)
        chosen = plan(Fault.POWERCUT, log, epochs(log), first_entry=-1, states_max=45, seed=1)
        taken = {state.whole for state in chosen.states}
    members = tail.batch
    assert {(), members} <= taken
    assert {(member,) for member in members} <= taken
    assert {tuple(other for other in members if other != member) for member in members} <= taken
    assert {members[:count] for count in range(11)} <= taken


def test_an_entry_behind_the_log_has_no_state(place: Path) -> None:
    run_of(place, [Op("mark")])
    with WriteLog.open(place) as log:
        for entry in (-1, log.entry_count + 1):
            with pytest.raises(ValueError, match="not in this log"):
                everything_unflushed_lost(log, epochs(log), entry)


def test_a_plan_without_budget_is_refused(place: Path) -> None:
    run_of(place, [])
    with WriteLog.open(place) as log, pytest.raises(ValueError, match="states_max"):
        plan(Fault.POWERCUT, log, epochs(log), first_entry=-1, states_max=0, seed=1)
