"""Damages: each changes only what it names, its id rebuilds it, and digests reflect it exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rig.faults import ContentIndex, CrashState, Fault, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.states.damage import Astray, Flip, Unreadable, Zeros, device_end
from rig.faults.states.state import make_lying_state, make_state
from tests.unit.faults.disks import (
    ONE_DISK,
    SECTOR,
    Moment,
    Op,
    passes_self_check,
    rebuild,
    rebuild_device,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]
DAMAGING = [Fault.BITFLIP, Fault.MISDIRECTED, Fault.LOSTRANGE, Fault.BITROT]


Disk = np.ndarray[tuple[int], np.dtype[np.uint8]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "log"


def without_damage(state: CrashState) -> CrashState:
    if state.window:
        return make_lying_state(state.window, whole=state.whole, draw=state.draw)
    return make_state(state.epoch, state.fua_count, whole=state.whole, tears=state.tears, draw=state.draw)


def changed_bits(one: Disk, other: Disk) -> int:
    return int(np.unpackbits(one ^ other).sum())


@settings(max_examples=40)
@given(ops=some_ops(24, 0, 12, writes_max=4), fault=st.sampled_from(DAMAGING), seed=st.integers(0, 3))
def test_a_state_differs_from_the_undamaged_one_by_its_damage_and_nothing_else(
    place: Path, ops: list[Op], fault: Fault, seed: int
) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        for state in plan(fault, Logs(log), first_entry=-1, states_max=12, seed=seed).states:
            before, after = rebuild_device(log, without_damage(state)), rebuild_device(log, state)
            (damage,) = state.damages
            inside = slice(damage.offset_bytes, damage.offset_bytes + length_of(damage, log))  # type: ignore[union-attr]
            outside = np.ones(len(before), dtype=bool)
            outside[inside] = False
            assert (before[outside] == after[outside]).all()
            assert before[inside].tobytes() == state.read(log, inside.start, inside.stop - inside.start)
            match damage:
                case Flip():
                    assert damage.bit_count == changed_bits(before, after)
                case Zeros():
                    assert not after[inside].any()
                case Unreadable():
                    assert (before == after).all()
                    assert ((damage.offset_bytes, damage.length_bytes),) == state.unreadable
                case Astray():
                    assert after[inside].tobytes() == bytes(log.payload(damage.entry_index))
                    assert damage.entry_index not in state.whole
            assert parse_state(state.id, log, split) == state


def length_of(damage: object, log: WriteLog) -> int:
    return int(log.payload_bytes[damage.entry_index]) if isinstance(damage, Astray) else damage.length_bytes  # type: ignore[attr-defined]


@settings(max_examples=25)
@given(ops=some_ops(16, 0, 12, writes_max=4), data=st.data())
def test_digests_of_lies_and_damages_are_equal_exactly_where_the_disks_are(
    place: Path, ops: list[Op], data: st.DataObject
) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        split, index = epochs(log), ContentIndex(log)
        count = data.draw(st.integers(1, 25))
        states = [
            state
            for fault in ONE_DISK
            for state in plan(fault, Logs(log), split, first_entry=-1, states_max=count, seed=1).states
        ]
        states += [without_damage(state) for state in states]
        disks = {(index.digest(state), rebuild_device(log, state).tobytes(), state.unreadable) for state in states}
        assert len(disks) == len({digest for digest, _, _ in disks})
        # A disk that reads the same but fails elsewhere has another content.
        assert len(disks) == len({(disk, ranges) for _, disk, ranges in disks})


@settings(max_examples=40)
@given(ops=some_ops(24, 0, 12, writes_max=4), first=st.integers(0, 31), count=st.integers(1, 8))
def test_a_range_reads_as_it_stands_on_the_rebuilt_disk(place: Path, ops: list[Op], first: int, count: int) -> None:
    run_of(place, ops)
    count = min(count, 32 - first)
    with WriteLog.open(place) as log:
        for state in plan(Fault.TORN, Logs(log), first_entry=-1, states_max=12, seed=1).states:
            disk = rebuild_device(log, state)
            assert disk[first * SECTOR : (first + count) * SECTOR].tobytes() == state.read(
                log, first * SECTOR, count * SECTOR
            )


def test_flips_damage_only_what_was_written_in_the_last_epochs(place: Path) -> None:
    run_of(place, [op for n in range(20) for op in (Op("write", n, 1, n + 1), *FLUSH)])
    with WriteLog.open(place) as log:
        for fault in (Fault.BITFLIP, Fault.LOSTRANGE):
            chosen = plan(fault, Logs(log), first_entry=-1, states_max=200, seed=1).states
            assert len(chosen) > 100
            for state in chosen:
                (damage,) = state.damages
                assert isinstance(damage, Flip | Zeros | Unreadable)
                sectors = range(damage.offset_bytes // SECTOR, (damage.offset_bytes + damage.length_bytes) // SECTOR)
                written = range(max(0, state.epoch.number - 4), state.epoch.number + 1)
                assert set(sectors) & set(written), state.id
                assert state.unflushed_lost is False


def test_bits_rot_in_old_blocks_as_well_and_never_in_zeros(place: Path) -> None:
    ops = [Op("write", 0, 8, 1), *FLUSH, Op("write", 24, 8, 0), *FLUSH]
    run_of(place, [*ops, *(op for _ in range(9) for op in (Op("write", 8, 8, 2), *FLUSH))])
    with WriteLog.open(place) as log:
        chosen = plan(Fault.BITROT, Logs(log), first_entry=-1, states_max=200, seed=1).states
        blocks = {state.damages[0].offset_bytes // 4096 for state in chosen}  # type: ignore[union-attr]
        assert {0, 1} == blocks
        assert {0, 1} == {s.damages[0].offset_bytes // 4096 for s in chosen if s.epoch.flush is None}  # type: ignore[union-attr]


def test_a_stray_write_leaves_its_place_as_it_was_and_hits_a_place_that_the_window_leaves_alone(place: Path) -> None:
    run_of(place, [Op("write", 0, 24, 1), *FLUSH, Op("write", 8, 8, 2), *FLUSH])
    with WriteLog.open(place) as log:
        split = epochs(log)
        states = plan(Fault.MISDIRECTED, Logs(log), split, first_entry=1, states_max=9, seed=1).states
        places = {(state.epoch.number, state.damages[0].offset_bytes // 4096) for state in states}  # type: ignore[union-attr]
        assert {(1, 0), (1, 2), (2, 0), (2, 2)} >= places
        assert {0, 2} == {block for _, block in places}
        for state in states:
            disk = rebuild_device(log, state)
            assert disk[4096:8192].tobytes() == log.replay(2, 1 << 14)[4096:8192].tobytes()


@settings(max_examples=100)
@given(ops=some_ops(6, 0, 3, writes_max=4))
# The first write is open to the FUA in its first sector, which is written again; its second sector must not be lost.
@example(ops=[Op("write", 0, 2, 2), Op("fua", 0, 1, 1), *FLUSH, Op("write", 0, 1, 3), *FLUSH])
def test_all_other_flushed_writes_stand_where_one_went_astray(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, [Op("write", 31, 1, 1), *FLUSH, *(replace(op) for op in ops)])
    entries = {id(op): entry for entry, op in enumerate(disk.log)}
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        for state in plan(Fault.MISDIRECTED, Logs(log), first_entry=-1, states_max=20, seed=1).states:
            (damage,) = state.damages
            assert isinstance(damage, Astray)
            gone = {damage.entry_index, *state.epoch.ambiguous}
            completed = [op for op in disk.order if entries[id(op)] < state.epoch.end]
            there = Moment(tuple((op, True) for op in completed if entries[id(op)] not in gone), 0)
            assert there.whole_contents() == {rebuild(log, without_damage(state))}, state.id


def test_the_seed_of_a_flip_decides_which_bits(place: Path) -> None:
    run_of(place, [Op("write", 0, 8, 1)])
    with WriteLog.open(place) as log:
        disks = {
            rebuild_device(log, parse_state(f"tail.f0.w0.x0:4096:8:{seed:016x}", log, epochs(log))).tobytes()
            for seed in range(20)
        }
        assert 20 == len(disks)


@pytest.mark.parametrize(
    "text",
    [
        "tail.f0.x0:512:0:0000000000000000",
        "tail.f0.x0:512:4097:0000000000000000",
        "tail.f0.x100:512:1:0000000000000000",
        "tail.f0.z0:100",
        "tail.f0.z0:0",
        "tail.f0.z8192:8192",
        "tail.f0.u99999999488:512",
        "tail.f0.m0:0",
        "tail.l1.w2.m2:0",
        "tail.l1.m2:4096",
        "tail.l1.m0:0",
        "tail.l1.r0000000000000001p50.m2:0",
        "tail.f0.d0",
        "tail.f0.z0:512.i0",
    ],
)
def test_damage_that_cannot_be_is_refused(place: Path, text: str) -> None:
    run_of(place, [Op("write", 0, 24, 1), *FLUSH, Op("write", 8, 8, 2), *FLUSH])
    with WriteLog.open(place) as log:
        assert 24 * SECTOR == device_end(log)
        for fine in ("tail.f0.x0:512:3:0000000000000001", "tail.l1.m2:0", "tail.f0.z512:1024.u0:512"):
            assert fine == parse_state(fine, log, epochs(log)).id
        with pytest.raises(StateIdError):
            parse_state(text, log, epochs(log))


@settings(max_examples=15)
@given(ops=some_ops(16, 0, 12, writes_max=4), fault=st.sampled_from(DAMAGING))
def test_the_seed_decides(place: Path, ops: list[Op], fault: Fault) -> None:
    run_of(place, [*(op for n in range(4) for op in (Op("write", n, 1, n + 1), *FLUSH)), *ops])
    with WriteLog.open(place) as log:
        logs = Logs(log)
        one, again, other = (plan(fault, logs, first_entry=-1, states_max=30, seed=seed) for seed in (1, 1, 2))
        assert one == again
        if fault in {Fault.BITFLIP, Fault.BITROT}:
            assert 30 == len(one.states)
            assert one != other
