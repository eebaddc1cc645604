"""A journal on a second disk, in the guest: both logs are sound, and only legal states keep promises."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rig.campaign import campaign, record
from rig.campaign.replay import replay
from rig.campaign.session import READY_LIMIT_S, STATE_LIMIT_S, VerifierSession
from rig.campaign.verdicts import verdict
from rig.contract.errors import UsageError
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, DiskLetter, EntryFlag, Fault, JointState, Logs, WriteLog, plan
from rig.faults.states import addresses
from rig.faults.states.jointstate import make_joint
from rig.faults.states.state import everything_unflushed_lost
from rig.filesystems.ext import DISK_MIB, JOURNAL_DISK_MIB
from rig.machines.guests import Machines
from rig.machines.pool import Clones
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.cuts import Cut
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from rig.store import Run
from tests.vm.samples import Recorder, findings, scenario_of, two_agree


def plan_states(logs: Logs, states_max: int) -> list[JointState]:
    first_entry = Timeline(logs.first.marks).setup.entry_index
    found = plan(Fault.TWODISK, logs, first_entry=first_entry, states_max=states_max, seed=1)
    return [state for state in found.states if isinstance(state, JointState)]


def judge(scenario: Scenario, machines: Clones, log: WriteLog, chosen: Sequence[JointState]) -> list[VerdictKind]:
    timeline = Timeline(log.marks)
    found = findings(scenario, machines, log, list[CrashState](chosen))
    cuts = [Cut(scenario.id, state, "", state.instant, 0) for state in chosen]
    return [verdict(cut, one, timeline).kind for cut, one in zip(cuts, found, strict=True)]


def test_both_logs_are_sound_are_made_again_and_prove_states_of_two_instants(
    recorder: Template, recorded: Recorder
) -> None:
    scenario = scenario_of("delete_full", fault="twodisk")
    made = recorded(scenario)
    kept = {name: (made.folder / name).read_bytes() for name in ("log-a.zst", "log-b.zst")}
    assert two_agree(list(kept.values()), lambda: list(map(archive.pack, record.run(scenario, recorder)[1])))
    with made.open() as logs:
        chosen = plan_states(logs, 100)
        assert any(state.is_apart for state in chosen)
        assert {DiskLetter.A, DiskLetter.B} == {state.late for state in chosen}
        assert any(state.whole or state.draw for state in chosen)
        assert all(logs.parse(state.id) == state for state in chosen)


def test_the_verifier_holds_both_disks_byte_for_byte(verifier: Template, recorded: Recorder) -> None:
    scenario = scenario_of("delete_full", fault="twodisk")
    with recorded(scenario).open() as logs, verifier.clone(recording=logs.first.path) as machine:
        session = VerifierSession(machine, scenario, logs.first)
        machine.receive(READY_LIMIT_S)
        chosen = plan_states(logs, 6)
        for state in chosen:
            machine.send(session.request(state) | {"digest": True})
            assert machine.receive(STATE_LIMIT_S)["sha256"] == content_sha256(state), state.id
    assert len(chosen) > 3


def content_sha256(state: JointState) -> str:
    """Digest both disks by the host's own replay from entry 0."""
    device = np.zeros(DISK_MIB << 20, dtype=np.uint8)
    data_bytes = (DISK_MIB - JOURNAL_DISK_MIB) << 20
    sizes = {DiskLetter.A: data_bytes, DiskLetter.B: JOURNAL_DISK_MIB << 20}
    for (disk, size), begin in zip(sizes.items(), (0, data_bytes), strict=True):
        log, own = state.logs.sides[disk].log, state.states[disk]
        part = log.replay(own.base_end, DISK_MIB << 20)
        for entry, skip, length in own.pieces(log).tolist():
            at = int(log.offset_bytes[entry]) + skip
            part[at : at + length] = np.frombuffer(log.payload(entry)[skip : skip + length], dtype=np.uint8)
        assert not part[size:].any()
        device[begin : begin + size] = part[:size]
    return hashlib.sha256(device.tobytes()).hexdigest()


@pytest.mark.parametrize("settings", ["wal_full", "delete_extra"])
def test_settings_that_lose_nothing_to_a_power_cut_lose_nothing_on_two_disks(
    settings: str, user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = scenario_of(settings, fault="twodisk")
    with recorded(scenario).open() as logs:
        found = judge(scenario, user_mode, logs.first, plan_states(logs, 40))
    assert {VerdictKind.DURABLE} == set(found), Counter(found)
    assert len(found) > 20


def test_ext4_by_default_loses_what_it_has_synced_unless_it_flushes_the_data_disk_before_it_commits(
    user_mode: UserMode, recorded: Recorder
) -> None:
    """Linux 6.12 does not: see `rig.filesystems.ext`. A kernel that does keeps the promise, and this test holds too."""
    scenario = replace(scenario_of("wal_full", fault="twodisk"), mount_options="")
    with recorded(scenario).open() as logs:
        log = logs.first
        turns = Timeline(log.marks).turns
        flushes = np.flatnonzero(log.flags & EntryFlag.FLUSH)
        flushed = all(np.any((flushes > begin.entry_index) & (flushes < ack.entry_index)) for begin, ack in turns)
        found = judge(scenario, user_mode, log, plan_states(logs, 12))
    assert flushed is ({VerdictKind.DURABLE} == set(found)), Counter(found)


def test_without_syncs_two_disks_lose_what_was_acknowledged(user_mode: UserMode, recorded: Recorder) -> None:
    scenario = scenario_of("delete_off", fault="twodisk")
    with recorded(scenario).open() as logs:
        found = judge(scenario, user_mode, logs.first, plan_states(logs, 24))
    assert VerdictKind.LOST_SUFFIX in found, Counter(found)


@pytest.mark.parametrize("late", list(DiskLetter))
def test_an_early_disk_before_a_flush_that_the_host_saw_complete_breaks_what_was_promised(
    late: DiskLetter, user_mode: UserMode, recorded: Recorder
) -> None:
    """An illegal state is judged broken: one disk at the end of the workload, the other at its beginning."""
    scenario = scenario_of("delete_extra", fault="twodisk")
    with recorded(scenario).open() as opened_logs:
        log, logs = opened_logs.first, opened_logs.pair
        pair = {}
        for disk, mark in ((late, -1), (late.other, logs.mark_number(Timeline(log.marks).setup.entry_index))):
            side = logs.sides[disk]
            pair[disk] = everything_unflushed_lost(side.log, side.epochs, side.marks[mark])
        (kind,) = judge(scenario, user_mode, log, [make_joint(logs, late, pair[late], pair[late.other])])
    assert kind is not VerdictKind.DURABLE


def test_a_run_of_two_disks_goes_on_where_it_stopped_and_shows_each_state_again(
    recorder: Template, verifier: Template, user_mode: UserMode, recorded: Recorder, tmp_path: Path
) -> None:
    scenario = scenario_of("delete_full", fault="twodisk")
    run = Run.create(tmp_path / "run", {})
    shutil.copytree(recorded(scenario).folder, run.recording_folder(scenario))
    profile = replace(matrix.profile("quick"), states_max=12)

    machines = Machines(recorder, verifier, user_mode)

    def measure() -> list[Verdict]:
        campaign.Campaign(run, profile, machines, campaign.Silent()).measure([scenario])
        assert {} == run.failures()
        return run.verdicts(scenario.id)[0]

    whole = measure()
    (result,), _ = run.results()
    assert len(whole) == result.plan.state_count > 6
    assert result.plan.apart_count > 0
    assert profile.audit_count == result.plan.audited_count
    path = tmp_path / "run" / "scenarios" / scenario.id / "verdicts.jsonl"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:3]))
    # Which of the states with known files were opened depends on how the work was divided.
    again = measure()
    assert Counter(replace(one, opened=True) for one in whole) == Counter(replace(one, opened=True) for one in again)
    lost = [one for one in whole if one.kind is VerdictKind.LOST_SUFFIX] or whole
    shown = replay(run, scenario.id, lost[0].state, machines)
    assert shown.agrees
    assert (lost[0].kind, lost[0].kind) == (shown.facts["verdict"], shown.facts["stored"])
    with pytest.raises(UsageError, match="is not a crash state of"):
        replay(run, scenario.id, addresses.split(lost[0].state)[1], machines)
