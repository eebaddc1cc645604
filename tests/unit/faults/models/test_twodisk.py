"""Two disks against the brute-force model: every joint state is reachable, none that is proven is missing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.faults import DiskLetter, LogError, StateIdError, TwoLogs, WriteLog, parse_joint
from rig.faults.models import twodisk
from rig.faults.states.jointstate import JointIndex, JointState, make_joint
from rig.faults.states.state import make_state
from tests.unit.faults import disks
from tests.unit.faults.disks import Op, emit
from tests.unit.faults.twodisks import Builder, Step, TwoDisks, claims, logs_of, marks_claimed, some_steps

FLUSH_A = [("a", Op("flush-begin")), ("a", Op("flush-end"))]
FLUSH_B = [("b", Op("flush-begin")), ("b", Op("flush-end"))]
MARK = [("", Op("mark")), ("", Op("mark"))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two") / "log"


def run_of(steps: list[Step]) -> TwoDisks:
    run = TwoDisks()
    run.run(steps)
    return run


def everything(logs: TwoLogs, first_mark: int = 0) -> list[JointState]:
    plan = twodisk.states(logs, JointIndex(logs), first_mark=first_mark, states_max=10**6, seed=1)
    return [state for state in plan.states if isinstance(state, JointState)]


def passes_self_check(logs: TwoLogs, run: TwoDisks) -> bool:
    return all(disks.passes_self_check(logs.sides[disk].log, run.disks[disk]) for disk in DiskLetter)


@settings(max_examples=250)
@given(steps=some_steps())
def test_every_joint_state_is_reachable_with_its_acknowledgements_seen(place: Path, steps: list[Step]) -> None:
    run = run_of([*MARK, *steps])
    with logs_of(place, run) as logs:
        assume(passes_self_check(logs, run))
        possible = run.reachable()
        builder = Builder(place)
        for state in everything(logs):
            assert possible.get(builder.build(state), -1) >= marks_claimed(state), state.id
            assert parse_joint(state.id, logs) == state


@settings(max_examples=150)
@given(steps=some_steps(fua_from=2))
def test_what_holds_however_the_two_logs_interleave_is_planned_and_nothing_else(place: Path, steps: list[Step]) -> None:
    with logs_of(place, run_of([*MARK, *steps])) as logs:
        first = {disk: logs.sides[disk].marks[0] for disk in DiskLetter}
        expected: dict[object, int] = {}
        for late, of_late, of_early in claims(logs):
            if of_late.instant > first[late]:
                state = make_joint(logs, late, of_late, of_early)
                content = Builder(place).build(state)
                expected[content] = max(expected.get(content, 0), marks_claimed(state))
        builder = Builder(place)
        assert expected == {builder.build(state): marks_claimed(state) for state in everything(logs)}


@settings(max_examples=60)
@given(steps=some_steps(), states_max=st.integers(1, 20), seed=st.integers(0, 3))
def test_a_plan_keeps_to_its_budget_and_its_first_mark_and_is_deterministic(
    place: Path, steps: list[Step], states_max: int, seed: int
) -> None:
    with logs_of(place, run_of([*MARK, *steps, *MARK])) as logs:
        first_mark = len(logs.sides[DiskLetter.A].marks) // 2
        index = JointIndex(logs)
        plan = twodisk.states(logs, index, first_mark=first_mark, states_max=states_max, seed=seed)
        # Each role has at least one state.
        assert len(plan.states) <= max(2, states_max)
        assert plan == twodisk.states(logs, index, first_mark=first_mark, states_max=states_max, seed=seed)
        assert all(marks_claimed(state) > first_mark for state in plan.states if isinstance(state, JointState))
        assert len({state.id for state in plan.states}) == len(plan.states)


def claimed_cuts(logs: TwoLogs, *ids: str) -> dict[str, tuple[int, bool]]:
    """For each legal one of these ids: the number of marks before it, and whether the disks are apart."""
    found = {}
    for text in ids:
        with contextlib.suppress(StateIdError):
            state = parse_joint(text, logs)
            found[text] = marks_claimed(state), state.is_apart
    return found


def test_a_flush_of_the_other_disk_that_the_marks_leave_open_forbids_a_claim(place: Path) -> None:
    """The same requests, with and without a mark between the two flushes."""
    begin = [*MARK, ("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2))]
    with logs_of(place, run_of([*begin, *FLUSH_A, *FLUSH_B, *MARK])) as logs:
        assert not claimed_cuts(
            logs, "a:e2.f0.w1+b:e2.f0", "a:e2.f0.w1+b:tail.f0", "b:e2.f0+a:e2.f0", "b:e2.f0+a:tail.f0"
        )
        assert {"b:tail.f0+a:tail.f0"} == {state.id for state in everything(logs)}
    with logs_of(place, run_of([*begin, *FLUSH_A, *MARK, *FLUSH_B, *MARK])) as logs:
        # Before the flush of `a` no write of `b` was durable; before the flush of `b` all of `a` was.
        ids = ("a:e2.f0.w1+b:e3.f0", "b:e3.f0.w2+a:tail.f0", "b:tail.f0+a:tail.f0")
        assert dict(zip(ids, [(1, False), (2, False), (3, True)], strict=True)) == claimed_cuts(logs, *ids)
        assert not claimed_cuts(logs, "a:e2.f0.w1+b:tail.f0", "b:e3.f0.w2+a:e2.f0")


def test_a_mark_orders_only_what_stands_on_either_side_of_it(place: Path) -> None:
    half = [("", Op("mark"))]
    begin = [*MARK, ("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2))]
    # The flush of a completes after the mark in its log, and the flush of b after the mark in its own.
    with logs_of(place, run_of([*begin, *half, *FLUSH_A, *half, *FLUSH_B, *MARK])) as logs:
        assert not claimed_cuts(logs, "b:e3.f0+a:e3.f0", "b:e3.f0+a:tail.f0")
    # In the log of b its flush completes before the mark, which follows that in the log of a and so the flush of a.
    with logs_of(place, run_of([*begin, *FLUSH_A, *half, *FLUSH_B, *half, *MARK])) as logs:
        assert not claimed_cuts(logs, "b:e2.f0+a:e2.f0", "b:e2.f0+a:tail.f0")
    with logs_of(place, run_of([*begin, *FLUSH_A, *half, *half, *FLUSH_B, *MARK])) as logs:
        assert {"b:e3.f0+a:tail.f0": (2, False)} == claimed_cuts(logs, "b:e3.f0+a:e2.f0", "b:e3.f0+a:tail.f0")


def test_the_late_disk_is_apart_when_it_holds_what_became_durable_after_the_pin(place: Path) -> None:
    steps = [
        *MARK,
        ("a", Op("write", 0, 1, 1)),
        *FLUSH_A,
        *MARK,
        ("b", Op("fua", 0, 1, 2)),
        ("b", Op("write", 1, 1, 3)),
    ]
    with logs_of(place, run_of([*steps, *MARK])) as logs:
        apart = {state.id for state in everything(logs) if state.is_apart}
        assert {"b:tail.f1+a:tail.f0", "b:tail.f1.w4+a:tail.f0"} == apart
    # Without a mark in between the two may have become durable in either order.
    with logs_of(place, run_of([*steps[:5], *steps[7:], *MARK])) as logs:
        assert not any(state.is_apart for state in everything(logs))


def test_an_empty_flush_changes_nothing_and_forbids_nothing(place: Path) -> None:
    steps = [*MARK, ("b", Op("write", 0, 1, 2)), *FLUSH_A, *FLUSH_B, *FLUSH_A, *MARK]
    with logs_of(place, run_of(steps)) as logs:
        ids = {"b:e2.f0+a:e1.f0", "b:e2.f0.w1+a:e1.f0"}
        assert ids == set(claimed_cuts(logs, *ids))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("e3.f0", "not the id of two disks"),
        ("a:e2.f0+a:e2.f0", "not the id of two disks"),
        ("c:e2.f0+b:e3.f0", "not the id of two disks"),
        ("a:e2.f0+", "not the id of two disks"),
        ("a:e2.f7+b:e3.f0", "the epoch has 0 FUA writes"),
        ("a:e9.f0+b:e3.f0", "no epoch e9"),
        ("a:e2.f0+b:tail.f0", "held e3.f0"),
        ("a:e2.f0+b:e3.f0.w2", "held e3.f0"),
        ("b:e3.f0.w2+a:e2.f0", "held tail.f0"),
        ("a:tail.l1+b:tail.f0", "not one of a power cut"),
        ("a:e2.f0.w1.i1+b:e3.f0", "not one of a power cut"),
        ("a:e2.f0.r0000000000000001p50u512+b:e3.f0", "not one of a power cut"),
    ],
)
def test_an_id_that_is_no_joint_state_of_these_logs_is_refused(place: Path, text: str, why: str) -> None:
    begin = [*MARK, ("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2))]
    with logs_of(place, run_of([*begin, *FLUSH_A, *MARK, *FLUSH_B, *MARK])) as logs:
        with pytest.raises(StateIdError, match=why):
            parse_joint(text, logs)
        assert parse_joint("a:e2.f0.w1+b:e3.f0", logs).late is DiskLetter.A


@settings(max_examples=60)
@given(text=st.text(alphabet="ab:+e123tail.fwr0,-", max_size=24))
def test_any_text_is_a_joint_state_or_a_typed_error(place: Path, text: str) -> None:
    run = run_of([*MARK, ("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK])
    with logs_of(place, run) as logs, contextlib.suppress(StateIdError):
        assert parse_joint(text, logs).id == text


def test_what_the_log_of_either_disk_does_not_tell_is_claimed_of_neither(place: Path) -> None:
    """A write and a FUA write of one sector, in an order that the log does not tell, and overwritten later."""
    open_order = [("b", Op("write", 0, 1, 1)), ("b", Op("fua", 0, 1, 2)), *FLUSH_B, *MARK, *MARK]
    after = [("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK, ("b", Op("write", 0, 1, 3)), *FLUSH_B, *MARK]
    with logs_of(place, run_of([*MARK, *open_order, *after])) as logs:
        assert logs.sides[DiskLetter.B].epochs[1].doubtful
        assert not claimed_cuts(
            logs, "a:e4.f0+b:e8.f0", "a:e4.f0.w3+b:e8.f0", "b:e8.f0+a:tail.f0", "b:e8.f0.w7+a:tail.f0"
        )
        # Before the order mattered, and after the sector was overwritten, nothing is open.
        found = everything(logs)
        assert any(state.id.startswith("b:tail") for state in found)
        assert not any("b:e8" in state.id for state in found)


def test_an_epoch_that_the_marks_leave_open_is_unproven_and_one_whose_content_is_open_is_doubtful(place: Path) -> None:
    def counts(steps: list[Step]) -> tuple[int, int]:
        with logs_of(place, run_of([*MARK, *steps, *MARK])) as logs:
            plan = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=10**6, seed=1)
            epochs = [epoch for side in logs.sides.values() for epoch in side.epochs if epoch.end > side.marks[0]]
            assert len(epochs) == plan.epoch_count + plan.epochs_unproven + plan.epochs_doubtful
            return plan.epochs_unproven, plan.epochs_doubtful

    writes: list[Step] = [("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2))]
    assert (3, 0) == counts([*writes, *FLUSH_A, *FLUSH_B])
    assert (1, 0) == counts([*writes, *FLUSH_A, *MARK, *FLUSH_B])
    open_order: list[Step] = [("b", Op("write", 0, 1, 1)), ("b", Op("fua", 0, 1, 2)), *FLUSH_B, *MARK, *MARK]
    after: list[Step] = [("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK, ("b", Op("write", 0, 1, 3)), *FLUSH_B]
    _, doubtful = counts([*open_order, *after])
    assert doubtful > 0


def test_a_state_that_is_not_proven_is_refused_with_its_reason(place: Path) -> None:
    steps = [*MARK, ("a", Op("write", 0, 1, 1)), ("b", Op("write", 0, 1, 2)), *FLUSH_A, *FLUSH_B, *MARK]
    with logs_of(place, run_of(steps)) as logs, pytest.raises(StateIdError, match="the logs do not tell"):
        parse_joint("a:e2.f0+b:e2.f0", logs)


def test_an_illegal_state_can_be_built_with_the_early_disk_further_back(place: Path) -> None:
    steps = [*MARK, ("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK, ("b", Op("write", 0, 1, 2)), *FLUSH_B, *MARK]
    with logs_of(place, run_of(steps)) as logs:
        a, b = (logs.sides[disk].epochs for disk in DiskLetter)
        late = make_joint(logs, DiskLetter.B, make_state(b[-1], 0), make_state(a[-1], 0))
        rolled_back = make_joint(logs, DiskLetter.B, make_state(b[-1], 0), make_state(a[0], 0))
        assert 33 == Builder(place).build(late)[0][0]
        assert (0, 65) == tuple(content[0] for content in Builder(place).build(rolled_back))


def test_logs_with_other_marks_are_refused_and_the_file_named(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    emit(one, [Op("mark"), Op("mark")], 1)
    emit(two, [Op("mark")], 1)
    with (
        WriteLog.open(one) as a,
        WriteLog.open(two) as b,
        pytest.raises(LogError, match=r"two: .*1 marks, but 2 in the log of the other disk; the first 1 are the same"),
    ):
        TwoLogs(a, b)
