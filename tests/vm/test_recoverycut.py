"""A second cut during the recovery from the first: what recovery writes, what the cut leaves, and that it can hurt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rig.analysis.judging.promises import promise_of, violates
from rig.campaign import campaign
from rig.campaign.campaign import Silent
from rig.campaign.recover import recover
from rig.campaign.replay import replay
from rig.campaign.session import READY_LIMIT_S, STATE_LIMIT_S, VerifierSession
from rig.contract.errors import UsageError
from rig.contract.results import VerdictKind
from rig.faults import Address, CrashState, EntryFlag, Fault, Logs, WriteLog, epochs, plan
from rig.faults.choosing.selection import evenly_spaced
from rig.filesystems.ext import DISK_MIB
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix, recoverycuts
from rig.planning.matrix import Profile
from rig.recordings.recoveries import Recoveries, Recovery, self_contained
from rig.recordings.timeline import Timeline
from rig.store import Run
from tests.vm.samples import SHORT, Recorder, content_sha256, findings, open_recording, scenario_of

SCENARIO = "sqlite-ext4-delete_full_recoverycut"
TINY = Profile(
    "tiny", SHORT.transaction_count, 60, 0, exposure_min=5, repeats="none", side_states_max=40
)  # fmt: skip


def hot(log: WriteLog) -> CrashState:
    """Return a cut in the middle of a commit, with the journal synced and part of the database overwritten."""
    timeline = Timeline(log.marks)
    begin, ack = timeline.begins[5].entry_index, timeline.acks[5].entry_index
    states = plan(Fault.POWERCUT, Logs(log), first_entry=begin, states_max=400, seed=1).states
    return max((one for one in states if begin < one.instant < ack), key=lambda one: (one.base_end, len(one.whole)))


Recovered = tuple[CrashState, Recovery, Recoveries, int]


@dataclass(frozen=True)
class Measured:
    """A finished run, and what is needed to repeat it."""

    run: Run
    measure: Callable[[Path], Run]


@pytest.fixture
def recovered(verifier: Template, recorded: Recorder, tmp_path: Path) -> Iterator[Recovered]:
    scenario = scenario_of("delete_full", fault="recoverycut")
    kept = Recoveries(tmp_path, DISK_MIB)
    with open_recording(recorded(scenario)) as (_, log):
        state = hot(log)
        (one,) = recover(scenario, verifier, log, [state])
        assert one
        acked = Timeline(log.marks).acked_count(state.instant)
        assert ("prefix", acked) == (one.finding.kind, one.finding.recovered)
        whole = self_contained(state.id, state, log, one.log, DISK_MIB << 20)
        kept.save(state.id, whole, one.digest, one.trace)
        yield state, Recovery(state.id, one.places), kept, acked


def test_a_recovery_writes_to_the_database_and_its_flushes_and_fua_writes_are_logged(
    recovered: Recovered,
) -> None:
    state, recovery, kept, _ = recovered
    with kept.open(state.id) as made:
        writes, in_files = recoverycuts.writes(made, recovery)
        assert 0 < in_files.sum() < len(writes)
        behind = made.log.flags[made.first_entry + 1 :]
        # ext4's replayed journal, the database, the deletion of the journal, and the unmounted file system, at least.
        assert (behind & EntryFlag.FLUSH > 0).sum() > 4
        assert (behind & EntryFlag.FUA > 0).any()
        assert len(epochs(made.log)) > 5
        # ext4 writes its superblock with FUA and plainly, and only the block trace tells which came last.
        assert not any(epoch.doubtful for epoch in epochs(made.log))
        made.log.account = None
        assert any(epoch.doubtful for epoch in epochs(made.log))


def test_the_disk_of_a_second_cut_in_the_guest_is_the_one_that_is_meant_byte_for_byte(
    verifier: Template, recovered: Recovered, recorded: Recorder
) -> None:
    state, _, kept, _ = recovered
    scenario = scenario_of("delete_full", fault="recoverycut")
    with kept.open(state.id) as made, open_recording(recorded(scenario)) as (_, log):
        planned = plan(Fault.POWERCUT, Logs(made.log), first_entry=made.first_entry, states_max=60, seed=1)
        states = list(evenly_spaced(planned.states, 5))
        expected = [content_sha256(made.log, one) for one in states]
        assert content_sha256(log, state) == content_sha256(made.log, made.start()), (
            "the recovery starts on another disk than the first cut left"
        )
        found = []
        with verifier.clone(recording=made.log.path) as machine:
            session = VerifierSession(machine, scenario, made.log)
            machine.receive(READY_LIMIT_S)
            for one in states:
                machine.send(session.request(one) | {"digest": True})
                found.append(machine.receive(STATE_LIMIT_S)["sha256"])
    assert expected == found
    assert len(states) == len(set(expected))


def test_a_second_cut_of_an_honest_disk_rolls_back_once_more_and_one_of_a_lying_disk_does_damage(
    user_mode: UserMode, recovered: Recovered
) -> None:
    state, recovery, kept, acked = recovered
    scenario = scenario_of("delete_full", fault="recoverycut")
    with kept.open(state.id) as made:
        log = made.log
        honest = plan(Fault.POWERCUT, Logs(log), first_entry=made.first_entry, states_max=25, seed=1).states
        assert any(recoverycuts.is_inside(one, made, recovery) for one in honest)
        found = findings(scenario, user_mode, log, honest)
        assert {("prefix", acked)} == {(one.kind, one.recovered) for one in found}
        lies = plan(Fault.LYINGFLUSH, Logs(log), first_entry=made.first_entry, states_max=400, seed=1).states
        # No lie may reach back before the recovery.
        inside = [
            one for one in lies if one.base_end > made.first_entry and recoverycuts.is_inside(one, made, recovery)
        ]
        found = findings(scenario, user_mode, log, inside[:40])
    assert any(VerdictKind(one.kind).is_damage for one in found if one.kind != "prefix")


@pytest.fixture(scope="module")
def measured(
    recorder: Template, verifier: Template, user_mode: UserMode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    """Give a campaign of one scenario with few recoveries, and what is needed to repeat it."""
    (scenario,) = matrix.select([SCENARIO])
    folder = tmp_path_factory.mktemp("recoverycut") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recoverycuts, "_FIRSTS_MIN", 2)

        def measure(at: Path) -> Run:
            run = Run.create(at, {})
            machines = Machines(recorder, verifier, user_mode)
            campaign.Campaign(run, TINY, machines, Silent()).measure([replace(scenario, workload=SHORT)])
            return run

        yield Measured(measure(folder), measure)


def test_every_cut_of_every_recovery_has_one_verdict_and_keeps_the_promise(measured: Measured) -> None:
    ((result,), damaged) = measured.run.results()
    assert [] == damaged
    assert {} == measured.run.failures()
    assert result.plan.state_count == len(result.verdicts) == len({one.state for one in result.verdicts})
    # Two recoveries, and one from a cut of one of these.
    assert 3 == result.plan.recovery_count
    assert 0 < result.plan.inside_count < result.plan.state_count
    assert TINY.audit_count == result.plan.audited_count
    assert {1, 2} == {len(Address.parse(one.state).way) for one in result.verdicts}
    assert len({one.entry for one in result.verdicts}) <= 2
    promise = promise_of(result.scenario)
    assert promise
    assert not any(violates(promise, one) or one.kind.is_infrastructure for one in result.verdicts)


def without_opened(lines: Sequence[str]) -> list[str]:
    """Verdicts, sorted; which of the states with known files were opened depends on how the work was divided."""
    return sorted(json.dumps({**json.loads(line), "opened": None}) for line in lines)


def test_measuring_again_measures_nothing_and_what_is_lacking_is_measured_from_the_same_recoveries(
    measured: Measured, tmp_path: Path
) -> None:
    before = content_of(measured.run.folder)
    measured.measure(measured.run.folder)
    assert before == content_of(measured.run.folder)
    copy = tmp_path / "run"
    shutil.copytree(measured.run.folder, copy)
    path = copy / "scenarios" / SCENARIO / "verdicts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    measured.measure(copy)
    assert without_opened(lines) == without_opened(path.read_text().splitlines())


def test_a_second_and_a_third_cut_are_rebuilt_from_the_stored_recoveries(
    measured: Measured, recorder: Template, verifier: Template, user_mode: UserMode
) -> None:
    verdicts, _ = measured.run.verdicts(SCENARIO)
    machines = Machines(recorder, verifier, user_mode)
    for depth in (1, 2):
        deepest = [one for one in verdicts if len(Address.parse(one.state).way) == depth][-1]
        again = replay(measured.run, SCENARIO, deepest.state, machines)
        assert again.agrees
        assert f"{deepest.state} (content {deepest.content})" == again.facts["state"]
        assert deepest.kind == again.facts["stored"]
    with pytest.raises(UsageError, match="no recovery from"):
        replay(measured.run, SCENARIO, str(Address.parse(verdicts[0].state).then("e1.f0")), machines)


def test_a_damaged_recovery_is_named_and_costs_its_scenario_no_wrong_verdict(
    measured: Measured, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(measured.run.folder, copy)
    before = (copy / "scenarios" / SCENARIO / "verdicts.jsonl").read_bytes()
    path = max((copy / "scenarios" / SCENARIO / "recoveries").glob("*.zst"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    run = measured.measure(copy)
    assert str(path) in run.failures()[SCENARIO]
    assert before == (copy / "scenarios" / SCENARIO / "verdicts.jsonl").read_bytes()


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
