"""The audit: planned states are built whole and given to the checker; one that fails voids its scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import summarise
from rig.analysis.show.report import report_html
from rig.contract.errors import LegalityError
from rig.contract.results import PlanFacts
from rig.faults import Address, CrashState, DiskLetter, Fault, JointState, Logs, TwoLogs, WriteLog, epochs
from rig.faults.models import twodisk
from rig.faults.states.jointstate import JointIndex, make_joint
from rig.faults.states.rendering import contents
from rig.faults.states.state import landable, make_state
from rig.filesystems.ext import DISK_MIB, JOURNAL_DISK_MIB
from rig.planning import matrix
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut
from rig.recordings.recoveries import OpenRecovery, self_contained
from rig.store import Run
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Op, content_of, everything, rebuild, run_of
from tests.unit.faults.models.test_twodisk import FLUSH_A, FLUSH_B, MARK
from tests.unit.faults.twodisks import Step, TwoDisks, logs_of
from tests.unit.samples import durable, measured_scenario, sqlite

TWO_MIB = (DISK_MIB - JOURNAL_DISK_MIB, JOURNAL_DISK_MIB)
FIRST_BYTE = TWO_MIB[0] << 20
FLUSH = [Op("flush-begin"), Op("flush-end")]
OPS = [
    Op("write", 0, 2, 1), Op("write", 4, 2, 1), *FLUSH, Op("mark"), Op("fua", 12, 1, 1), Op("mark"),
    Op("write", 0, 2, 2), Op("write", 8, 2, 2), *FLUSH, Op("write", 14, 1, 3), *FLUSH,
]  # fmt: skip
POWERCUT, RECOVERYCUT, TWODISK = (
    matrix.select([f"sqlite-ext4-wal_full_{fault}"])[0] for fault in ("powercut", "recoverycut", "twodisk")
)


def cut(state: CrashState, entry: int | None = None) -> Cut:
    return Cut(POWERCUT.id, state, state.id, state.instant if entry is None else entry, 0)


def test_whole_contents_are_those_that_a_verifier_builds_and_leave_nothing_behind(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        states = sorted(everything(Fault.TORN, log).states, key=lambda state: state.base_end)
        for state, device in zip(states, contents(log, states, DISK_MIB << 20), strict=True):
            assert rebuild(log, state) == content_of(device[: DISK_SECTORS * SECTOR])
            assert not device[DISK_SECTORS * SECTOR :].any()


@pytest.mark.parametrize("fault", ["powercut", "torn", "shorn", "oscrash", "plp", "discard"])
def test_a_sample_of_what_is_planned_is_audited_and_all_of_it_if_there_is_less(tmp_path: Path, fault: str) -> None:
    (scenario,) = matrix.select([f"sqlite-ext4-wal_full_{fault}"])
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        cuts = [cut(state) for state in everything(Fault.of(fault), log).states]
        auditor = Auditor(Logs(log), [DISK_MIB])
        assert (3, len(cuts)) == (auditor.audit(scenario, cuts, 3), auditor.audit(scenario, cuts, 10**6))


def test_a_disk_that_lies_is_not_audited(tmp_path: Path) -> None:
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_lyingflush"])
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        cuts = [cut(state) for state in everything(Fault.LYINGFLUSH, log).states]
        assert 0 == Auditor(Logs(log), [DISK_MIB]).audit(scenario, cuts, 10**6)


def test_a_state_that_answers_for_too_many_acknowledgements_is_the_rigs_fault_and_named(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        first, second, *_ = epochs(log)
        for state, entry in ((make_state(first, 0), second.end), (make_state(second, 0), second.end)):
            with pytest.raises(LegalityError, match="the rig is wrong") as caught:
                Auditor(Logs(log), [DISK_MIB]).audit(POWERCUT, [cut(state, entry)], 1)
            assert POWERCUT.id in str(caught.value)
            assert state.id in str(caught.value)
            assert "sector " in str(caught.value)


def test_a_cut_that_answers_for_fewer_acknowledgements_than_it_could_is_fine(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        second = epochs(log)[1]
        late = make_state(second, 1, whole=landable(second))
        assert 1 == Auditor(Logs(log), [DISK_MIB]).audit(POWERCUT, [cut(late, second.begin)], 1)


def test_a_void_scenario_is_a_failure_and_no_result(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"scenarios": [POWERCUT.id]})
    run.write_plan(POWERCUT, PlanFacts(1, 1, 1, 0, 0))
    run.void(POWERCUT, "sector 7")
    assert {POWERCUT.id: "sector 7"} == run.failures()
    assert ([], []) == run.results()


def test_the_report_says_how_many_states_were_proven_legal() -> None:
    one = measured_scenario(sqlite("wal", "full"), durable(5))
    shown = report_html(summarise([replace(one, plan=replace(one.plan, audited_count=7))], 1), {})
    assert "7 states were proven legal by an independent checker" in shown
    assert "proven legal" not in report_html(summarise([one], 1), {})


# Two flushes of each disk, with marks in between that prove their order.
STEPS: list[Step] = [
    *MARK, ("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK, ("b", Op("write", 0, 1, 2)), *FLUSH_B, *MARK, *MARK,
    ("a", Op("write", 1, 1, 3)), *FLUSH_A, *MARK, ("b", Op("write", 1, 1, 3)), *FLUSH_B, *MARK, *MARK,
]  # fmt: skip


@contextmanager
def two_disks(path: Path) -> Iterator[TwoLogs]:
    run = TwoDisks()
    run.run(STEPS)
    with logs_of(path, run, FIRST_BYTE) as logs:
        yield logs


def audit_joint(logs: TwoLogs, *states: CrashState, entry: int | None = None) -> int:
    cuts = [Cut(TWODISK.id, state, state.id, state.instant if entry is None else entry, 0) for state in states]
    return Auditor(Logs(*(logs.sides[disk].log for disk in DiskLetter)), TWO_MIB).audit(TWODISK, cuts, 10**6)


def test_every_state_of_two_disks_that_is_planned_is_legal_as_it_is_built(tmp_path: Path) -> None:
    with two_disks(tmp_path / "log") as logs:
        states = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=10**6, seed=1).states
        assert {DiskLetter.A, DiskLetter.B} == {state.late for state in states if isinstance(state, JointState)}
        assert len(states) == audit_joint(logs, *states) > 4


@pytest.mark.parametrize("late", list(DiskLetter))
def test_two_disks_of_which_one_lacks_what_it_had_flushed_are_the_rigs_fault(tmp_path: Path, late: DiskLetter) -> None:
    with two_disks(tmp_path / "log") as logs:
        epochs_of = {disk: logs.sides[disk].epochs for disk in DiskLetter}
        ends = {disk: make_state(epochs_of[disk][-1], 0) for disk in DiskLetter}
        # Before a FLUSH that the other disk's instant proves to be over; and a late disk that dropped a flushed write.
        behind = make_state(epochs_of[late.other][1], 0)
        dropped = make_state(epochs_of[late][1], 0, cut_at=epochs_of[late][-1].end)
        assert 1 == audit_joint(logs, make_joint(logs, late, ends[late], ends[late.other]))
        for of_late, of_early, wrong in ((ends[late], behind, late.other), (dropped, ends[late.other], late)):
            state = make_joint(logs, late, of_late, of_early)
            with pytest.raises(LegalityError, match="the rig is wrong") as caught:
                audit_joint(logs, state)
            assert state.id in str(caught.value)
            assert f"on the disk marked {'first' if wrong is DiskLetter.A else 'second'}" in str(caught.value)


def test_two_disks_that_answer_for_a_mark_behind_their_instant_are_the_rigs_fault(tmp_path: Path) -> None:
    with two_disks(tmp_path / "log") as logs:
        states = twodisk.states(logs, JointIndex(logs), first_mark=0, states_max=10**6, seed=1).states
        state = min(states, key=lambda one: one.instant)
        assert 1 == audit_joint(logs, state, entry=0)
        with pytest.raises(LegalityError, match="it answers for"):
            audit_joint(logs, state, entry=logs.sides[DiskLetter.A].log.entry_count)


def later(address: str, state: CrashState) -> str:
    return str(Address.parse(address).then(state.id))


RECOVERING = [
    Op("write", 0, 1, 3), Op("fua", 12, 1, 2), *FLUSH, Op("write", 9, 1, 3), Op("write", 1, 1, 3), *FLUSH,
    Op("write", 2, 1, 3),
]  # fmt: skip


class Recorded:
    """A recording, recoveries from states of it or of each other, and their audit; logs are open on the stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        run_of(folder / "log", OPS)
        run_of(folder / "raw", RECOVERING)
        self.log = self._open("log")
        self.recoveries: list[OpenRecovery] = []

    def recover(self, state: CrashState, log: WriteLog, address: str = "") -> OpenRecovery:
        data = self_contained(address or state.id, state, log, (self.folder / "raw").read_bytes(), DISK_MIB << 20)
        name = f"recovery{len(self.recoveries)}"
        (self.folder / name).write_bytes(data)
        self.recoveries.append(OpenRecovery(Logs(self._open(name)), address or state.id))
        return self.recoveries[-1]

    def audit(self, chosen: Sequence[Sequence[CrashState]], entry: int, count: int = 10**6) -> int:
        def cuts(recovery: OpenRecovery, states: Sequence[CrashState]) -> list[Cut]:
            way = (*recovery.address.way, recovery.address.content)
            return [Cut(RECOVERYCUT.id, state, state.id, entry, 0, way=way) for state in states]

        batches = [(one, cuts(one, states)) for one, states in zip(self.recoveries, chosen, strict=True)]
        return Auditor(Logs(self.log), [DISK_MIB]).audit_recoveries(RECOVERYCUT, batches, count)

    def _open(self, name: str) -> WriteLog:
        return self._stack.enter_context(WriteLog.open(self.folder / name))


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with ExitStack() as stack:
        yield Recorded(tmp_path, stack)


def plan_of(recovery: OpenRecovery) -> tuple[CrashState, ...]:
    return everything(Fault.POWERCUT, recovery.log, recovery.first_entry).states


def test_every_cut_of_a_recovery_and_of_a_recovery_from_one_is_legal_and_a_sample_is_spread(recorded: Recorded) -> None:
    firsts = sorted(everything(Fault.POWERCUT, recorded.log).states, key=lambda state: state.instant)[1:3]
    entry = min(state.instant for state in firsts)
    made = [recorded.recover(state, recorded.log) for state in firsts]
    second = plan_of(made[0])[-1]
    made.append(recorded.recover(second, made[0].log, later(firsts[0].id, second)))
    states = [plan_of(recovery) for recovery in made]
    assert sum(map(len, states)) == recorded.audit(states, entry)
    assert (3, 4) == (recorded.audit(states, entry, 3), recorded.audit([*states[:2], []], entry, 4))
    # One of each before a second of any: one that is wrong in every state is found by as many as there are recoveries.
    wrong = [make_state(epochs(recovery.log)[0], 0) for recovery in made]
    for rank in range(3):
        spoilt = [[wrong[rank]] if other == rank else list(found) for other, found in enumerate(states)]
        with pytest.raises(LegalityError, match="before the recovery began"):
            recorded.audit(spoilt, entry, 3)


def test_a_cut_of_a_recovery_that_lacks_what_the_recovery_had_flushed_is_the_rigs_fault(recorded: Recorded) -> None:
    first = everything(Fault.POWERCUT, recorded.log).states[0]
    recovery = recorded.recover(first, recorded.log)
    _, before, amid, _ = epochs(recovery.log)
    assert 1 == recorded.audit([[make_state(amid, 0)]], first.instant)
    dropped = make_state(before, 1, cut_at=amid.end)
    with pytest.raises(LegalityError, match="the rig is wrong") as caught:
        recorded.audit([[dropped]], first.instant)
    assert RECOVERYCUT.id in str(caught.value)
    assert later(first.id, dropped) in str(caught.value)


def test_a_recovery_that_began_with_what_no_cut_leaves_is_the_rigs_fault(recorded: Recorded) -> None:
    """Its own cuts are all legal: it is the content at the head of its log that is not."""
    first, second, *_ = epochs(recorded.log)
    start = make_state(first, 0)
    recovery = recorded.recover(start, recorded.log)
    assert 1 == recorded.audit([plan_of(recovery)[:1]], start.instant)
    with pytest.raises(LegalityError, match=f"state {start.id}, judged just before entry {second.end}"):
        recorded.audit([plan_of(recovery)[:1]], second.end)
    # And so if only a recovery from a cut of that one is looked at, itself begun as it says, or not.
    begun, claimed = make_state(epochs(recovery.log)[1], 0), make_state(epochs(recovery.log)[-1], 0)
    for says, entry, wrong in ((begun, second.end, start.id), (claimed, start.instant, later(start.id, claimed))):
        deeper = recorded.recover(begun, recovery.log, later(start.id, says))
        with pytest.raises(LegalityError, match=f"the planned state {wrong}, judged"):
            recorded.audit([[], plan_of(deeper)[:1]], entry)
        recorded.recoveries.pop()
