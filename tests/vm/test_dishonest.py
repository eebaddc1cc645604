"""Disks that lie, in the guest: exactly the bytes, and the errors, that the fault model specifies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rig.campaign.session import READY_LIMIT_S, STATE_LIMIT_S, VerifierSession
from rig.faults import CrashState, Fault, Logs, WriteLog, epochs, plan
from rig.faults.states.damage import Discarded, Unreadable
from rig.faults.states.state import landable, make_state
from rig.filesystems.ext import DISK_MIB
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.recordings.timeline import Timeline
from tests.unit.faults.disks import ONE_DISK
from tests.vm.samples import Recorder, content_sha256, findings, open_recording, scenario_of

FAULTS = [fault for fault in ONE_DISK if fault not in {Fault.POWERCUT, Fault.TORN, Fault.DISCARD}]


def plan_states(fault: Fault, log: WriteLog, states_max: int) -> list[CrashState]:
    first_entry = Timeline(log.marks).setup.entry_index
    return list(plan(fault, Logs(log), first_entry=first_entry, states_max=states_max, seed=1).states)


def sha256_in_guest(settings: str, template: Template, log: WriteLog, states: list[CrashState]) -> list[str]:
    found = []
    with template.clone(recording=log.path) as machine:
        session = VerifierSession(machine, scenario_of(settings), log)
        machine.receive(READY_LIMIT_S)
        for state in states:
            machine.send(session.request(state) | {"digest": True})
            found.append(machine.receive(STATE_LIMIT_S)["sha256"])
    return found


def test_the_disk_in_the_guest_holds_lies_and_damages_byte_for_byte(verifier: Template, recorded: Recorder) -> None:
    with open_recording(recorded(scenario_of("wal_full"))) as (_, log):
        states = [state for fault in FAULTS for state in plan_states(fault, log, 3)]
        states.sort(key=lambda state: (state.base_end, state.id))
        assert any(extent.literal for state in states for extent in state.extents(log)), "nothing literal is tried"
        expected = [content_sha256(log, state) for state in states]
        assert expected == sha256_in_guest("wal_full", verifier, log, states)
    assert len(set(expected)) > len(states) // 2


def test_a_range_that_cannot_be_read_is_an_error_to_its_reader_and_to_nobody_else(
    user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full")
    with open_recording(recorded(scenario)) as (_, log):
        tail = epochs(log)[-1]
        whole = make_state(tail, len(tail.fuas), whole=landable(tail))
        # The superblock of the file system, and the last block of the disk that was ever written.
        superblock = make_state(tail, len(tail.fuas), whole=whole.whole, damages=(Unreadable(0, 4096),))
        elsewhere = make_state(tail, len(tail.fuas), whole=whole.whole, damages=(Unreadable(unused_offset(log), 4096),))
        found = findings(scenario, user_mode, log, [whole, superblock, elsewhere, whole])
    assert ["prefix", "file-system-damage", "prefix", "prefix"] == [one.kind for one in found]
    assert "Input/output error" in found[1].detail
    assert found[0].recovered == found[2].recovered == found[3].recovered == scenario.workload.transaction_count


def unused_offset(log: WriteLog) -> int:
    """Return the last block that was never written but precedes one that was: an unused hole."""
    disk = log.replay(log.entry_count, DISK_MIB << 20).reshape(-1, 4096)
    used: list[int] = np.flatnonzero(disk.any(axis=1)).tolist()
    return max(high - 1 for low, high in pairwise(used) if high - low > 64) * 4096


@pytest.mark.parametrize("settings", ["delete_full"])
def test_a_file_system_mounted_with_discard_sends_them_and_survives_them_late(
    settings: str, user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = replace(scenario_of(settings), mount_options="discard")
    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(Fault.DISCARD, log, 20)
        assert any(isinstance(damage, Discarded) for state in states for damage in state.damages)
        assert any(extent.literal for state in states for extent in state.extents(log))
        found = findings(scenario, user_mode, log, states)
    assert {"prefix"} == {one.kind for one in found}
