"""The verifier puts exactly the crash state that the fault model specifies on a disk, whatever it checked before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rig.faults import CrashState, Fault, Logs, WriteLog, epochs, everything_unflushed_lost, plan
from rig.machines.pool import Clones
from rig.recordings.timeline import Timeline
from tests.vm.samples import Recorder, answers, content_sha256, open_recording, scenario_of


def plan_states(fault: Fault, log: WriteLog, states_max: int, first_entry: int = 0) -> Sequence[CrashState]:
    return plan(fault, Logs(log), first_entry=first_entry, states_max=states_max, seed=1).states


@pytest.mark.parametrize("settings", ["wal_normal", "delete_full"])
def test_the_disk_in_the_guest_is_the_crash_state_byte_for_byte(
    settings: str, checker: Clones, recorded: Recorder
) -> None:
    scenario = scenario_of(settings)
    with open_recording(recorded(scenario)) as (_, log):
        setup = Timeline(log.marks).setup.entry_index
        powercut, torn = plan_states(Fault.POWERCUT, log, 6, setup), plan_states(Fault.TORN, log, 6, setup)
        states = sorted([*powercut, *torn], key=lambda state: (state.base_end, state.id))
        assert len({state.base_end for state in states}) > 3, "the base hardly moves"
        assert any(state.tears or (state.draw and state.draw.unit_bytes) for state in states), "no write is torn"
        assert any(state.whole or state.draw for state in states), "no unflushed write lands"
        expected = [content_sha256(log, state) for state in states]
        found = answers(scenario, checker, log, states, {state.id for state in states})
    assert expected == [answer["sha256"] for answer in found]
    assert len(set(expected)) > len(states) // 2


@pytest.mark.parametrize("settings", ["wal_full", "delete_normal"])
@pytest.mark.representative
def test_a_known_file_content_stands_for_what_opening_it_shows(
    settings: str, checker: Clones, recorded: Recorder
) -> None:
    scenario = scenario_of(settings)
    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(Fault.POWERCUT, log, 120, Timeline(log.marks).setup.entry_index)
        every = answers(scenario, checker, log, states)
        some = answers(scenario, checker, log, states, must_open=False)
    assert all(one["opened"] for one in every)
    assert sum(not one["opened"] for one in some) > 20
    shown = ("kind", "recovered", "files")
    assert [[one[part] for part in shown] for one in every] == [[one[part] for part in shown] for one in some]
    assert len({one["recovered"] for one in every}) > 4, "one finding for all would not show"


@pytest.mark.representative
def test_no_state_leaks_into_another_or_into_the_base(checker: Clones, recorded: Recorder) -> None:
    scenario = scenario_of("wal_full")
    with open_recording(recorded(scenario)) as (_, log):
        timeline = Timeline(log.marks)
        begin, ack = timeline.begins[4].entry_index, timeline.acks[4].entry_index
        # Within the commit of one transaction, which may have landed or not: whole writes, then torn ones.
        same = everything_unflushed_lost(log, epochs(log), ack - 1)
        others: list[CrashState] = []
        for fault in (Fault.POWERCUT, Fault.TORN):
            states = [
                state for state in plan_states(fault, log, 1500, begin) if state.epoch == same.epoch and state != same
            ]
            others += sorted(states, key=lambda state: len(state.whole), reverse=True)[:15]
        assert len(others) == 30
        later = everything_unflushed_lost(log, epochs(log), log.entry_count)
        assert later.base_end > same.base_end
        interleaved = [each for other in others[:5] for each in (other, same)]
        states = [same, *interleaved, *others[5:], same, later]
        found = answers(scenario, checker, log, states, {same.id, later.id})
        expected = {state.id: content_sha256(log, state) for state in (same, later)}
    assert {4, 5, 8} == {answer["recovered"] for answer in found}, "a leak would not show"
    of_same = [answer for answer in found if answer["state"] == same.id]
    assert len(of_same) == 7
    assert {finding(of_same[0])} == {finding(answer) for answer in of_same}
    assert {expected[same.id]} == {answer["sha256"] for answer in of_same}
    assert expected[later.id] == found[-1]["sha256"]
    assert finding(found[-1]) == ("prefix", scenario.workload.transaction_count, "")


def finding(answer: dict[str, Any]) -> tuple[str, int | None, str]:
    return answer["kind"], answer["recovered"], answer["detail"]
