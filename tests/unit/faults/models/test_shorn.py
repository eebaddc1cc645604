"""Shorn writes against the brute-force disk: garbage only where one interrupted write was at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings

from rig.faults import CrashState, Fault, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.states.damage import Garbage
from rig.faults.states.state import Tear, make_state
from tests.unit.faults.disks import (
    DISK_SECTORS,
    SECTOR,
    Content,
    Moment,
    Op,
    content_of,
    everything,
    marks_claimed,
    passes_self_check,
    rebuild_device,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]
BLOCK_SECTORS = 8
NOISE = -1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shorn") / "log"


def content_with_noise(log: WriteLog, state: CrashState) -> Content:
    """The rebuilt disk, with a separate number for sectors whose content was never written."""
    device = rebuild_device(log, state).copy()
    words = device.view("<u4").reshape(DISK_SECTORS, -1)
    noisy = (words != words[:, :1]).any(axis=1)
    words[noisy] = 0
    return tuple(np.where(noisy, NOISE, np.array(content_of(device), dtype=np.int64)).tolist())


def rests(op: Op) -> Iterator[range]:
    """The ranges that an interrupted write may leave as garbage: from a sector to the end of its block or the write."""
    for first in range(op.sector + 1, op.sector + op.count):
        if first % BLOCK_SECTORS:
            yield range(first, min(op.sector + op.count, first // BLOCK_SECTORS * BLOCK_SECTORS + BLOCK_SECTORS))


def is_reachable(moment: Moment, content: Content) -> bool:
    """Whether a cut at a moment can leave this: any version of any sector, and one interrupted block with garbage."""
    versions = [{version for (version,) in possible} for possible in moment.versions(1)]
    noise = {sector for sector, value in enumerate(content) if value == NOISE}
    if any(value not in versions[sector] for sector, value in enumerate(content) if sector not in noise):
        return False
    return any(
        noise == set(rest) and not noise & covered_since(moment, rank)
        for rank, (op, is_durable) in enumerate(moment.writes)
        if not is_durable
        for rest in rests(op)
    )


def covered_since(moment: Moment, rank: int) -> set[int]:
    """The sectors that hold a later write for sure."""
    return {sector for op, is_durable in moment.writes[rank + 1 :] if is_durable for sector in op.sectors()}


@settings(max_examples=150)
@given(ops=some_ops(24, 0, 20, writes_max=4))
def test_every_state_is_reachable_where_an_interrupted_block_may_hold_garbage(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        split = epochs(log)
        for state in plan(Fault.SHORN, Logs(log), first_entry=-1, states_max=60, seed=1).states:
            content, claimed = content_with_noise(log, state), marks_claimed(log, state)
            assert NOISE in content, state.id
            assert any(m.marks_seen >= claimed and is_reachable(m, content) for m in disk.moments), state.id
            assert parse_state(state.id, log, split) == state


@settings(max_examples=60)
@given(ops=some_ops(20, 0, 18, writes_max=3))
def test_of_a_small_log_every_shear_of_every_unflushed_write_is_generated(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        split = epochs(log)
        assume(not any(epoch.open_sectors for epoch in split))
        shorn = {noise_of(state) for state in everything(Fault.SHORN, log).states}
        written = [(entry, op) for entry, op in enumerate(disk.log) if op.kind in {"write", "fua"}]
        expected = {(entry, rest.start - op.sector, len(rest)) for entry, op in written for rest in rests(op)}
        assert expected == shorn


def noise_of(state: CrashState) -> tuple[int, int, int]:
    (garbage,) = state.damages
    assert isinstance(garbage, Garbage)
    epoch = state.epoch
    assert garbage.entry_index in (epoch.batch if state.fua_count == len(epoch.fuas) else epoch.fuas)
    return garbage.entry_index, garbage.first_sector, garbage.sector_count


def test_every_shear_with_the_old_rest_is_a_state_of_torn_writes(place: Path) -> None:
    """New up to some sector of a block and old after it, for any length of the write and any neighbours."""
    ops = [Op("fua", 24, 8, 5), Op("write", 0, 16, 1), Op("write", 18, 3, 2), Op("write", 23, 1, 3), *FLUSH]
    ops += [Op("fua", 4, 18, 6), Op("write", 24, 8, 4)]
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        torn = {
            (tear.entry_index, tear.units)
            for state in plan(Fault.TORN, Logs(log), first_entry=-1, states_max=2000, seed=1).states
            for tear in state.tears
        }
        expected = {
            (entry, tuple(range(rest.start - op.sector)))
            for entry, op in enumerate(disk.log)
            if op.kind in {"write", "fua"}
            for rest in rests(op)
        }
        assert len(expected) > 40
        missing = expected - torn
        assert not missing


@pytest.mark.parametrize(
    "text",
    [
        # Nothing torn; another write; another size of unit; two writes at once.
        "tail.f0.g0:1:7:0000000000000001",
        "tail.f0.t1:512:0.g0:1:7:0000000000000001",
        "tail.f0.t0:4096:0.g0:9:7:0000000000000001",
        "tail.f0.t0:512:0.g0:1:7:0000000000000001.g0:9:7:0000000000000001",
        # Not to the end of the block; over it; from the block's first sector; beyond the write.
        "tail.f0.t0:512:0.g0:1:6:0000000000000001",
        "tail.f0.t0:512:0.g0:1:8:0000000000000001",
        "tail.f0.t0:512:0-7.g0:8:8:0000000000000001",
        "tail.f0.t1:512:0.g1:1:7:0000000000000001",
        # What is before the garbage in its block is old, or what is garbage landed.
        "tail.f0.t0:512:0.g0:2:6:0000000000000001",
        "tail.f0.t0:512:8.g0:1:7:0000000000000001",
        "tail.f0.t0:512:0-1.g0:1:7:0000000000000001",
        "tail.f0.t0:512:0,8.g0:10:6:0000000000000001",
        # A second damage.
        "tail.f0.t0:512:0.g0:1:7:0000000000000001.z0:512",
    ],
)
def test_garbage_that_no_interrupted_write_leaves_is_refused(place: Path, text: str) -> None:
    run_of(place, [Op("write", 0, 16, 1), Op("write", 20, 3, 2)])
    with WriteLog.open(place) as log:
        for fine in (
            "tail.f0.t0:512:0.g0:1:7:0000000000000001",
            "tail.f0.w1.t0:512:0,8-15.g0:1:7:0000000000000001",
            "tail.f0.t0:512:0-9.g0:10:6:0000000000000001",
            "tail.f0.t0:512:8.g0:9:7:0000000000000001",
            "tail.f0.t1:512:0.g1:1:2:0000000000000001",
        ):
            assert fine == parse_state(fine, log, epochs(log)).id
        with pytest.raises(StateIdError):
            parse_state(text, log, epochs(log))


def test_the_seed_decides_the_garbage_and_nothing_outside_the_write_changes(place: Path) -> None:
    run_of(place, [Op("write", 0, 32, 1), *FLUSH, Op("write", 10, 3, 2)])
    with WriteLog.open(place) as log:
        before = rebuild_device(log, parse_state("tail.f0", log, epochs(log)))
        disks = set()
        for seed in range(9):
            state = parse_state(f"tail.f0.t2:512:0.g2:1:2:{seed:016x}", log, epochs(log))
            device = rebuild_device(log, state)
            changed = np.flatnonzero((device != before).reshape(DISK_SECTORS, SECTOR).any(axis=1))
            assert [10, 11, 12] == changed.tolist()
            disks.add(device.tobytes())
        assert 9 == len(disks)


def test_the_seed_of_a_plan_decides_all_garbage_of_it(place: Path) -> None:
    run_of(place, [Op("write", 0, 16, 1), Op("fua", 16, 9, 2), *FLUSH, Op("write", 3, 9, 2)])
    with WriteLog.open(place) as log:
        one, again, other = (
            plan(Fault.SHORN, Logs(log), first_entry=-1, states_max=30, seed=seed) for seed in (1, 1, 2)
        )
        assert one == again
        assert not {state.id for state in one.states} & {state.id for state in other.states}
        assert 0 == one.epochs_exhaustive


SAME = [Op("fua", 0, 8, 1), Op("write", 0, 8, 1)]


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        ([*SAME, Op("write", 3, 1, 2)], "tail.f1.t1:512:0-1.g1:2:6:0000000000000001"),
        ([SAME[0], Op("mark"), SAME[1], *FLUSH, Op("mark")], "e3.f1.t2:512:0-1.g2:2:6:0000000000000001"),
    ],
)
def test_a_write_of_the_bytes_of_a_fua_write_leaves_no_garbage_unless_it_came_later_for_sure(
    place: Path, ops: list[Op], text: str
) -> None:
    """Garbage tells the two apart: had the FUA write come later, it would have covered it for good."""
    run_of(place, ops)
    with WriteLog.open(place) as log:
        with pytest.raises(StateIdError, match="may have come later"):
            parse_state(text, log, epochs(log))
        entry = int(text.split(".t")[1].partition(":")[0])
        assert entry not in {noise_of(state)[0] for state in everything(Fault.SHORN, log).states}
        # Neither does the checker know: the same content, without the help of the parser.
        epoch = next(one for one in epochs(log) if entry in one.batch)
        shorn = make_state(epoch, 1, tears=(Tear(entry, 512, (0, 1)),), damages=(Garbage(entry, 2, 6, 1),))
        content = rebuild_device(log, shorn)
        answer = Checker(log, len(content)).check(content, shorn.instant, Rule.SHORN)
        assert answer.legality is Legality.UNDECIDED


def test_a_write_that_came_after_a_fua_write_for_sure_may_be_shorn_over_it(place: Path) -> None:
    run_of(place, [Op("fua", 0, 8, 1), Op("write", 0, 9, 2)])
    with WriteLog.open(place) as log:
        state = parse_state("tail.f1.t1:512:0-1,8.g1:2:6:0000000000000001", log, epochs(log))
        content = rebuild_device(log, state)
        assert "legal" == str(Checker(log, len(content)).check(content, state.instant, Rule.SHORN))
        assert 1 in {noise_of(state)[0] for state in everything(Fault.SHORN, log).states}
