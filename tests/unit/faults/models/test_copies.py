"""Two disks whose logs came with the times of their requests: the clock orders what no mark lies between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings

from rig.faults import DiskLetter, JointState, TwoLogs, parse_joint
from rig.faults.legality.jointlegality import JointChecker
from rig.faults.legality.legality import Legality
from rig.faults.log.account import NEVER, Account
from rig.faults.models import twodisk
from rig.faults.states.jointstate import JointIndex
from tests.unit.faults import disks
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Op
from tests.unit.faults.legality.test_legality import device
from tests.unit.faults.models.test_twodisk import FLUSH_A, FLUSH_B, MARK
from tests.unit.faults.twodisks import Builder, Step, TwoDisks, logs_of, marks_claimed, some_steps

# The same write to either disk, and both flushed without a mark in between.
COPIED: list[Step] = [("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 1)), *FLUSH_A, *FLUSH_B]
FUAS: list[Step] = [("a", Op("fua", 1, 1, 2)), ("b", Op("fua", 1, 1, 2))]


@dataclass
class TimedTwo(TwoDisks):
    """Two disks that know the step of each request: one that takes no time, except that a FLUSH completes later."""

    # By the identity of a request; and for each entry of a log, the step in which it was logged.
    done: dict[int, int] = field(default_factory=dict)
    logged: dict[DiskLetter, list[int]] = field(default_factory=lambda: {disk: [] for disk in DiskLetter})
    step_count: int = 0

    def _do(self, disk: DiskLetter, op: Op) -> None:
        own, before = replace(op), len(self.disks[disk].log)
        self.done[id(own)] = self.step_count
        self.kept.append(own)
        super()._do(disk, own)
        self.logged[disk] += [self.step_count] * (len(self.disks[disk].log) - before)
        self.step_count += 1

    # Keeps requests alive, so that each has an identity of its own.
    kept: list[Op] = field(default_factory=list)

    def account(self, disk: DiskLetter, entry_count: int) -> Account:
        """Return the account of a log: a write completes in its step, a FLUSH when it is logged."""
        log = self.disks[disk].log
        logged = self.logged[disk] + [self.step_count] * (len(log) - len(self.logged[disk]))
        found = np.full((entry_count, 2), NEVER)
        for entry, (op, step) in enumerate(zip(log, logged, strict=True)):
            if op.kind != "mark":
                at = self.done[id(op)] if op.kind == "write" else step
                found[entry] = 2 * at, 2 * at + 1
        return Account(found[:, 0], found[:, 1], times_ns=found)


def run_of(steps: list[Step]) -> TimedTwo:
    run = TimedTwo()
    run.run(steps)
    return run


@contextmanager
def open_timed(path: Path, run: TimedTwo) -> Iterator[TwoLogs]:
    """Open both logs, each with the times of its entries."""
    size = DISK_SECTORS * SECTOR
    with logs_of(path, run) as logs:
        for disk, side in logs.sides.items():
            side.log.account = run.account(disk, side.log.entry_count)
            side.log.device_bytes = size
        yield TwoLogs(*(side.log for side in logs.sides.values()), b_device_bytes=size)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies") / "log"


def everything(logs: TwoLogs) -> list[JointState]:
    found = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=10**6, seed=1)
    assert 0 == found.epochs_unproven
    return [state for state in found.states if isinstance(state, JointState)]


@settings(max_examples=150)
@given(steps=some_steps())
def test_every_state_is_reachable_with_its_acknowledgements_and_the_checker_calls_it_legal(
    place: Path, steps: list[Step]
) -> None:
    run = run_of([*MARK, *steps])
    with open_timed(place, run) as logs:
        assume(all(disks.passes_self_check(side.log, run.disks[disk]) for disk, side in logs.sides.items()))
        possible, builder = run.reachable(), Builder(place)
        checker = JointChecker([side.log for side in logs.sides.values()], [DISK_SECTORS * SECTOR] * 2)
        for state in everything(logs):
            pair = builder.build(state)
            assert possible.get(pair, -1) >= marks_claimed(state), state.id
            assert parse_joint(state.id, logs) == state
            late = list(DiskLetter).index(state.late)
            both = [device(content) for content in pair]
            answer = checker.check(both, late, state.states[state.late].instant)
            assert answer.legality is Legality.LEGAL, (state.id, str(answer))


def test_copies_that_are_flushed_together_are_cut_apart_and_by_the_marks_alone_never(place: Path) -> None:
    run = run_of([*MARK, *COPIED, *FUAS, *MARK])
    with logs_of(place, run) as unordered:
        plan_of_marks = twodisk.states(unordered, JointIndex(unordered), first_mark=0, states_max=99, seed=1)
        assert ["b:tail.f1+a:tail.f1"] == [state.id for state in plan_of_marks.states]
        assert 0 < plan_of_marks.epochs_unproven
    with open_timed(place, run) as logs:
        found = {Builder(place).build(state): state for state in everything(logs)}
    # Sector 0 was copied by a write, sector 1 by a FUA write.
    seen = {tuple(content[:2] for content in pair) for pair in found}
    one, other = 33, 65
    assert ((one, 0), (0, 0)) in seen, "the copy of the first disk alone"
    assert ((0, 0), (0, 0)) in seen, "neither copy"
    assert any(a[1] and not b[1] for a, b in seen), "the FUA write of the first disk alone"
    assert not any(b[1] and not a[1] for a, b in seen), "the first had completed by then"
    assert ((one, other), (one, other)) in seen, "both copies"


def test_the_checker_knows_by_the_clock_what_had_become_durable(place: Path) -> None:
    """Of the first disk's flush the second knows when it completes, though no mark lies between."""
    run = run_of([*MARK, *COPIED, *MARK])
    with open_timed(place, run) as logs:
        checker = JointChecker([side.log for side in logs.sides.values()], [DISK_SECTORS * SECTOR] * 2)
        empty, written = device((0,) * DISK_SECTORS), device((33,) + (0,) * (DISK_SECTORS - 1))
        flushes = {disk: side.durable[0] for disk, side in logs.sides.items()}
        assert Legality.LEGAL is checker.check((written, empty), 0, flushes[DiskLetter.A]).legality
        assert Legality.LEGAL is not checker.check((written, written), 0, flushes[DiskLetter.A]).legality
        assert Legality.LEGAL is checker.check((written, written), 1, flushes[DiskLetter.B]).legality
        assert Legality.ILLEGAL is checker.check((empty, written), 1, flushes[DiskLetter.B]).legality


def test_two_that_completed_in_the_same_nanosecond_prove_nothing(place: Path) -> None:
    run = run_of([*MARK, *COPIED, *MARK])
    flushes = {disk: [op.kind for op in run.disks[disk].log].index("flush") for disk in DiskLetter}
    run.logged[DiskLetter.B][flushes[DiskLetter.B]] = run.logged[DiskLetter.A][flushes[DiskLetter.A]]
    with open_timed(place, run) as logs:
        found = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=99, seed=1)
        assert 0 < found.epochs_unproven
        assert not any(state.id.startswith(("a:e", "b:e")) for state in found.states)
        checker = JointChecker([side.log for side in logs.sides.values()], [DISK_SECTORS * SECTOR] * 2)
        written = device((33,) + (0,) * (DISK_SECTORS - 1))
        for early in (written, np.zeros_like(written)):
            answer = checker.check((written, early), 0, logs.sides[DiskLetter.A].durable[0])
            assert Legality.UNDECIDED is answer.legality


def test_a_disk_is_apart_by_what_it_was_sent_after_the_other_ones_last(place: Path) -> None:
    """Of two copies that are written together neither comes after the other."""
    later: list[Step] = [("b", Op("write", 2, 1, 3))]
    with open_timed(place, run_of([*MARK, *COPIED, *MARK, *later, *MARK])) as logs:
        apart = {state.id for state in everything(logs) if state.is_apart}
    assert {"b:tail.f0.w5+a:tail.f0"} == {one for one in apart if one.startswith("b:tail")}


def test_a_disk_is_not_apart_by_what_both_were_sent_at_the_same_time(place: Path) -> None:
    later: list[Step] = [("b", Op("write", 2, 1, 3))]
    with open_timed(place, run_of([*MARK, *COPIED, *MARK, *later, *MARK])) as logs:
        for side in logs.sides.values():
            assert side.log.account
            assert side.log.account.times_ns is not None
            side.log.account.times_ns[:, 0] = np.minimum(side.log.account.times_ns[:, 0], 0)
        found = {state.id: state.is_apart for state in everything(logs)}
    assert found["b:tail.f0.w5+a:tail.f0"] is False
