"""A verifier that goes on with another recording shows what a fresh one shows; a spoilt one is not used again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from rig.campaign.evidence import of_recording
from rig.contract.clocks import Clock
from rig.faults import CrashState, Fault, Logs, WriteLog, plan
from rig.machines.guests import Machines
from rig.machines.pool import Clones, Pool
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.recordings.timeline import Timeline
from tests.vm.samples import Recorder, answers, check, content_sha256, findings, open_recording, scenario_of

WAL, DELETE = scenario_of("wal_normal"), scenario_of("delete_full")


@pytest.fixture
def pool(checker: Clones) -> Iterator[Pool]:
    with closing(Pool(checker)) as made:
        yield made


@pytest.fixture
def logs(recorded: Recorder) -> Iterator[tuple[WriteLog, WriteLog]]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(open_recording(recorded(one)))[1] for one in (WAL, DELETE))
        yield first, second


def plan_states(log: WriteLog, count: int) -> list[CrashState]:
    setup = Timeline(log.marks).setup.entry_index
    return list(plan(Fault.POWERCUT, Logs(log), first_entry=setup, states_max=count, seed=1).states)


def resting(pool: Pool) -> list[int]:
    """Return the processes of the machines at rest."""
    return [machine.process.pid for machine, _ in pool._resting]


def test_the_disk_is_the_crash_state_byte_for_byte_whatever_recordings_the_machine_had_before(
    pool: Pool, logs: tuple[WriteLog, WriteLog]
) -> None:
    machines: set[int] = set()
    for scenario, log in ((WAL, logs[0]), (DELETE, logs[1]), (WAL, logs[0])):
        states = plan_states(log, 5)
        found = answers(scenario, pool, log, states, {state.id for state in states})
        assert [content_sha256(log, state) for state in states] == [answer["sha256"] for answer in found]
        assert {"prefix"} == {answer["kind"] for answer in found}
        machines |= set(resting(pool))
    assert 1 == len(machines)


def test_a_machine_that_goes_on_finds_what_a_fresh_one_finds(
    checker: Clones, pool: Pool, logs: tuple[WriteLog, WriteLog]
) -> None:
    def observe(machines: Clones) -> list[tuple[str, int | None, str, bool]]:
        found = findings(WAL, machines, logs[0], plan_states(logs[0], 40))
        return [(one.kind, one.recovered, one.files, one.opened) for one in found]

    findings(DELETE, pool, logs[1], plan_states(logs[1], 10))
    assert observe(checker) == observe(pool) == observe(pool)
    assert 1 == len(resting(pool))


def test_a_machine_that_died_at_rest_is_replaced(pool: Pool, logs: tuple[WriteLog, WriteLog]) -> None:
    states = plan_states(logs[0], 3)
    findings(WAL, pool, logs[0], states)
    (dead,) = resting(pool)
    os.kill(dead, signal.SIGKILL)
    assert {"prefix"} == {one.kind for one in findings(WAL, pool, logs[0], states)}
    assert [dead] != resting(pool)


def test_a_machine_whose_clock_was_set_or_that_was_interrupted_is_stopped(
    pool: Pool, logs: tuple[WriteLog, WriteLog]
) -> None:
    states = plan_states(logs[0], 4)
    assert 4 == len(list(check(WAL, pool, logs[0], states, [Clock.EPOCH, None, None, None])))
    assert [] == resting(pool)
    with closing(check(WAL, pool, logs[0], states)) as found:
        next(found)
    assert [] == resting(pool)
    # And a job that ends well leaves one.
    findings(WAL, pool, logs[0], states)
    assert 1 == len(resting(pool))


def test_machines_that_judge_for_an_explanation_stay_from_one_judgement_to_the_next(
    recorded: Recorder, recorder: Template, verifier: Template, user_mode: UserMode
) -> None:
    with of_recording(WAL, recorded(WAL), Machines(recorder, verifier, user_mode)) as evidence:
        states = plan_states(evidence.logs.first, 24)
        machines = []
        for part in (states[:8], states[8:16], states[16:]):
            evidence.judge([(state, None) for state in part])
            machines.append(sorted(resting(evidence._pooled.checker)))
    assert machines[0] == machines[1] == machines[2]
    assert machines[0]
