"""The checker of two disks against the brute-force host, in both directions, and against the generator."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.faults import DiskLetter, JointState, TwoLogs, WriteLog
from rig.faults.legality.jointlegality import JointChecker
from rig.faults.legality.legality import Legality, Ruling
from rig.faults.log.arrays import ByteArray
from rig.faults.models import twodisk
from rig.faults.states.jointstate import JointIndex, make_joint
from rig.faults.states.state import make_state
from tests.unit.faults import disks
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Content, Op
from tests.unit.faults.legality.test_legality import Watched, device
from tests.unit.faults.log.test_log import FLUSH, Entry, encode
from tests.unit.faults.log.test_log import MARK as MARK_FLAG
from tests.unit.faults.models.test_twodisk import FLUSH_A, FLUSH_B, MARK
from tests.unit.faults.twodisks import Builder, Step, TwoDisks, logs_of, some_steps

Pair = tuple[Content, Content]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joint") / "log"


@dataclass
class WatchedTwo(TwoDisks):
    """Two disks that know for each of their common moments how much of each had been logged."""

    disks: dict[DiskLetter, disks.Disk] = field(default_factory=lambda: {disk: Watched() for disk in DiskLetter})
    positions: list[tuple[int, int]] = field(default_factory=list)

    def possible(self, late: int) -> dict[int, tuple[set[Pair], int]]:
        """For each position of a log: every pair of contents then, and the fewest marks that disk `a` had."""
        found: dict[int, tuple[set[Pair], int]] = {}
        for position, (a, b) in zip(self.positions, self.moments, strict=True):
            pairs, marks = found.get(position[late], (set(), a.marks_seen))
            pairs |= set(product(a.whole_contents(), b.whole_contents()))
            found[position[late]] = pairs, min(marks, a.marks_seen)
        return found

    def _join(self, disk: DiskLetter, before: int) -> None:
        super()._join(disk, before)
        at = {one: state.positions for one, state in self.disks.items() if isinstance(state, Watched)}
        for own in at[disk][before:]:
            other = at[disk.other][-1]
            self.positions.append((own, other) if disk is DiskLetter.A else (other, own))


def watch(steps: list[Step]) -> WatchedTwo:
    run = WatchedTwo()
    run.run(steps)
    return run


def checker_of(logs: TwoLogs, run: TwoDisks) -> JointChecker:
    checked = all(disks.passes_self_check(logs.sides[disk].log, run.disks[disk]) for disk in DiskLetter)
    return JointChecker([logs.sides[disk].log for disk in DiskLetter], [DISK_SECTORS * SECTOR] * 2, is_replay=checked)


def both(pair: Pair) -> tuple[ByteArray, ByteArray]:
    return device(pair[0]), device(pair[1])


@settings(max_examples=120)
@given(steps=some_steps(sectors=3, count_max=18), seed=st.integers(0, 2**32 - 1))
def test_what_both_disks_can_hold_is_never_illegal_and_what_they_cannot_hold_at_one_time_is_never_legal(
    place: Path, steps: list[Step], seed: int
) -> None:
    run = watch([*MARK, *steps])
    with logs_of(place, run) as logs:
        checker = checker_of(logs, run)
        sides = [sorted({pair[rank] for pair in run.reachable()}) for rank in (0, 1)]
        # Hypothesis takes longer to draw each choice than the checker takes to judge it.
        chosen = Random(seed)
        for late in (0, 1):
            for position, (pairs, marks) in run.possible(late).items():
                assert checker.mark_count(late, position) <= marks
                crossed = {tuple(chosen.choice(side) for side in sides) for _ in range(4)}
                some = set(chosen.choices(sorted(pairs), k=2))
                for a, b in crossed | some:
                    answer = checker.check(both((a, b)), late, position)
                    expected = Legality.ILLEGAL if (a, b) in pairs else Legality.LEGAL
                    assert answer.legality is not expected, (late, position, a, b, str(answer))


@settings(max_examples=150)
@given(steps=some_steps())
def test_every_joint_state_that_is_planned_is_legal_when_it_is_judged(place: Path, steps: list[Step]) -> None:
    run = watch([*MARK, *steps])
    with logs_of(place, run) as logs:
        assume(all(disks.passes_self_check(logs.sides[disk].log, run.disks[disk]) for disk in DiskLetter))
        checker, builder = checker_of(logs, run), Builder(place)
        plan = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=10**6, seed=1)
        for state in plan.states:
            assert isinstance(state, JointState)
            answer = judge(checker, state, builder.build(state))
            assert answer.legality is Legality.LEGAL, (state.id, str(answer))
            seen = checker.mark_count(list(DiskLetter).index(state.late), state.states[state.late].instant)
            assert checker.mark_count(0, state.instant) <= seen


def judge(checker: JointChecker, state: JointState, contents: Pair) -> Ruling:
    return checker.check(both(contents), list(DiskLetter).index(state.late), state.states[state.late].instant)


BEGIN = [*MARK, ("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2))]


def open_logs(place: Path, steps: list[Step]) -> AbstractContextManager[TwoLogs]:
    return logs_of(place, watch([*BEGIN, *steps, *MARK]))


def answers(place: Path, logs: TwoLogs, late: DiskLetter, ends: tuple[int, int], **late_choice: tuple[int, ...]) -> str:
    """Judge both disks, each at the end of an epoch of its own log, with no unflushed writes on the early one."""
    chosen = {
        disk: make_state(logs.sides[disk].epochs[end], 0, whole=late_choice.get("whole", ()) if disk is late else ())
        for disk, end in zip(DiskLetter, ends, strict=True)
    }
    state = make_joint(logs, late, chosen[late], chosen[late.other])
    checker = JointChecker([logs.sides[disk].log for disk in DiskLetter], [DISK_SECTORS * SECTOR] * 2)
    return str(judge(checker, state, Builder(place).build(state)))


def test_a_disk_before_a_flush_that_a_mark_proves_to_be_over_is_illegal(place: Path) -> None:
    with open_logs(place, [*FLUSH_A, *MARK, *FLUSH_B]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.B, (1, 0))
        rolled_back = answers(place, logs, DiskLetter.B, (0, 0))
        assert rolled_back.startswith("illegal: sector 0 (byte 0): on the disk marked first: holds zeros; ")
    # The first mark of the two may be set before that flush is over, in the log of the other disk.
    with open_logs(place, [*FLUSH_B, *MARK, *MARK, *FLUSH_A]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.A, (0, 1))
        assert "on the disk marked second: holds zeros" in answers(place, logs, DiskLetter.A, (0, 0))


def test_a_disk_behind_a_flush_that_a_mark_proves_to_be_later_is_not_legal(place: Path) -> None:
    with open_logs(place, [*FLUSH_A, *MARK, *FLUSH_B]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.A, (0, 0))
        assert answers(place, logs, DiskLetter.A, (0, 1)).startswith("undecided: sector 0 ")
    # Writes after the second next flush had not even been submitted.
    later = [("b", Op("write", 1, 1, 3)), *FLUSH_B, ("b", Op("write", 2, 1, 3)), *FLUSH_B]
    with open_logs(place, [*FLUSH_A, *MARK, *FLUSH_B, *later]) as logs:
        assert answers(place, logs, DiskLetter.A, (0, 2)).startswith("undecided: ")
        assert answers(place, logs, DiskLetter.A, (0, 3)).startswith("illegal: sector 2 ")


def test_a_flush_that_the_marks_leave_open_makes_either_content_undecided(place: Path) -> None:
    with open_logs(place, [*FLUSH_A, *FLUSH_B]) as logs:
        for early in (0, 1):
            assert answers(place, logs, DiskLetter.A, (0, early)).startswith("undecided: sector 0 ")
            assert answers(place, logs, DiskLetter.B, (early, 0)).startswith("undecided: sector 0 ")


def test_half_a_mark_orders_only_what_stands_on_either_side_of_it(place: Path) -> None:
    half = MARK[:1]
    with open_logs(place, [*FLUSH_A, *half, *half, *FLUSH_B]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.B, (1, 0))
    for steps in ([*half, *FLUSH_A, *half, *FLUSH_B], [*FLUSH_A, *half, *FLUSH_B, *half]):
        with open_logs(place, steps) as logs:
            assert answers(place, logs, DiskLetter.B, (0, 0)).startswith("undecided: ")
            assert answers(place, logs, DiskLetter.B, (1, 0)).startswith("undecided: ")
    # Nor is anything between a mark of the first log and that mark of the second.
    with open_logs(place, [*FLUSH_B, *half, *FLUSH_A, *half]) as logs:
        assert answers(place, logs, DiskLetter.B, (0, 0)).startswith("undecided: ")
    with open_logs(place, [*FLUSH_B, *half, *half, *FLUSH_A]) as logs:
        assert answers(place, logs, DiskLetter.B, (0, 0)).startswith("undecided: ")
    with open_logs(place, [*FLUSH_B, *half, *half, *half, *FLUSH_A]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.B, (0, 0))


def test_what_was_not_flushed_may_be_on_the_late_disk_and_not_on_the_early_one(place: Path) -> None:
    """Whether the early disk had been sent it by then, no mark tells."""
    with open_logs(place, [*FLUSH_A, *MARK, *FLUSH_B]) as logs:
        assert "legal" == answers(place, logs, DiskLetter.A, (0, 0), whole=logs.sides[DiskLetter.A].epochs[0].batch)
        zeros, written = np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8), device((65,) + (0,) * (DISK_SECTORS - 1))
        checker = JointChecker([logs.sides[disk].log for disk in DiskLetter], [DISK_SECTORS * SECTOR] * 2)
        instant = logs.sides[DiskLetter.A].epochs[0].end
        assert "legal" == str(checker.check((zeros, zeros), 0, instant))
        answer = checker.check((zeros, written), 0, instant)
        assert (Legality.UNDECIDED, 0) == (answer.legality, answer.offset_bytes)


def test_a_flushed_write_that_is_gone_from_the_late_disk_is_illegal(place: Path) -> None:
    with open_logs(place, [*FLUSH_A, *MARK, *FLUSH_B]) as logs:
        checker = JointChecker([logs.sides[disk].log for disk in DiskLetter], [DISK_SECTORS * SECTOR] * 2)
        a, b = (logs.sides[disk].epochs for disk in DiskLetter)
        late = make_joint(logs, DiskLetter.B, make_state(b[1], 0), make_state(a[1], 0))
        contents = Builder(place).build(late)
        assert "legal" == str(judge(checker, late, contents))
        gone = judge(checker, late, (contents[0], (0,) * DISK_SECTORS))
        assert str(gone).startswith("illegal: sector 0 (byte 0): on the disk marked second: holds zeros; ")
        # Whatever can be said of the early disk.
        for early in ((0,) * DISK_SECTORS, (7,) * DISK_SECTORS):
            assert str(gone) == str(judge(checker, late, (early, (0,) * DISK_SECTORS)))


def test_the_kernels_own_marks_at_the_ends_of_both_logs_order_nothing(tmp_path: Path) -> None:
    end = Entry(MARK_FLAG, text="dm-log-writes-end")
    mark = Entry(MARK_FLAG, text="ack")
    (tmp_path / "a").write_bytes(encode([mark, end]))
    (tmp_path / "b").write_bytes(encode([Entry(0, 0, 1, 1), Entry(FLUSH), mark, end]))
    with WriteLog.open(tmp_path / "a") as a, WriteLog.open(tmp_path / "b") as b:
        checker = JointChecker([a, b], [DISK_SECTORS * SECTOR] * 2)
        assert [0, 1, 1] == [checker.mark_count(0, entry) for entry in range(3)]
        zeros = np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8)
        flushed = b.replay(b.entry_count, DISK_SECTORS * SECTOR)
        # The mark of the first log may have been set before the flush, which the mark of the second came after.
        assert Legality.UNDECIDED is checker.check((zeros, flushed), 0, a.entry_count).legality
        assert Legality.LEGAL is checker.check((zeros, flushed), 1, b.entry_count).legality
