"""Addresses: taken apart and put together without loss, for every kind of state, in this process and in another."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.campaign.verification import Job
from rig.contract.clocks import Clock
from rig.contract.faultspecs import SPECS
from rig.contract.scenario import Scenario
from rig.faults import Address, CrashState, Fault, Holds, Logs, StateIdError, WriteLog, plan
from rig.faults.states import addresses
from rig.planning.cuts import Cut
from tests.unit.faults.disks import ONE_DISK, Op, run_of
from tests.unit.faults.models.test_twodisk import FLUSH_A, FLUSH_B, MARK
from tests.unit.faults.twodisks import TwoDisks, logs_of

FLUSH = [Op("flush-begin"), Op("flush-end")]
OPS = [
    Op("write", 0, 12, 1), Op("fua", 12, 10, 1), *FLUSH, Op("mark"), Op("discard", 4, 4), Op("write", 16, 3, 1), *FLUSH,
    Op("write", 0, 2, 2), Op("write", 8, 9, 2), *FLUSH, Op("write", 24, 1, 3), *FLUSH,
]  # fmt: skip
STEPS = [
    *MARK, ("a", Op("write", 0, 1, 1)), *FLUSH_A, *MARK, ("b", Op("write", 0, 1, 2)), *FLUSH_B, *MARK, *MARK,
    ("a", Op("write", 1, 1, 3)), *FLUSH_A, *MARK,
]  # fmt: skip
CONTENTS = st.text("abe0123456789.,:-+", min_size=1, max_size=12)


@given(st.builds(Address, CONTENTS, st.lists(CONTENTS, max_size=3).map(tuple), st.sampled_from(["", *Clock])))
def test_an_address_is_put_together_as_it_was_taken_apart(address: Address) -> None:
    assert address == Address.parse(str(address))
    deeper = Address(address.content, address.way).then("tail.f0")
    assert (deeper.before, deeper.first) == (str(Address(address.content, address.way)), address.first)


@pytest.mark.parametrize("text", ["", "@", "~", "e1.f0~", "~e1.f0", "e1.f0~~e2.f0", "e1.f0@", "@right", "e1.f0@a@b"])
def test_an_address_with_a_part_missing_is_none(text: str) -> None:
    with pytest.raises(StateIdError, match="a part of it is missing"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["a:e1.f0", "a:e1.f0+a:e1.f0", "a:e1.f0+b:e1.f0+b:e1.f0", "e1.f0+e2.f0", "c:e1+b:e2"])
def test_what_does_not_name_both_disks_is_no_content_of_two(text: str) -> None:
    with pytest.raises(StateIdError, match="not the id of two disks"):
        addresses.split(text)
    assert ("b", "e1.f0", "a", "tail.f1") == addresses.split(addresses.join("b", "e1.f0", "a", "tail.f1"))


def test_a_cut_is_stored_under_the_way_to_it_its_state_and_its_clock(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        state = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=9, seed=1).states[-1]
    cut = Cut("scenario", state, "content", 7, 0, Clock.RIGHT, ("e1.f0", "e2.f0"))
    assert Address(state.id, ("e1.f0", "e2.f0"), "right") == Address.parse(cut.address)
    assert state.id == Cut("scenario", state, "content", 7, 0).address


HELD = {
    Fault.DISCARD: {"", Holds.DISCARD},
    Fault.SHORN: {Holds.GARBAGE},
    Fault.BITFLIP: {Holds.FLIP},
    Fault.BITROT: {Holds.FLIP},
    Fault.MISDIRECTED: {Holds.ASTRAY},
    Fault.LOSTRANGE: {Holds.ZEROS, Holds.UNREADABLE},
}


@pytest.mark.parametrize("fault", ONE_DISK)
def test_a_state_says_what_its_fault_left_in_it_and_a_parsed_one_says_the_same(tmp_path: Path, fault: Fault) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        logs = Logs(log)
        states = plan(fault, logs, first_entry=-1, states_max=200, seed=1).states
        assert HELD.get(fault, {""}) == {state.holds for state in states}
        assert [state.holds for state in states] == [logs.parse(state.id).holds for state in states]


def test_every_model_of_a_fault_is_found_by_its_word_and_no_other_is() -> None:
    for word in {spec.model for spec in SPECS.values()} - {""}:
        assert word == Fault.of(word)
    for word in ("", "powercuts", "planner"):
        with pytest.raises(KeyError):
            Fault.of(word)


REBUILD = """
import pickle, sys
job = pickle.load(sys.stdin.buffer)
with job.logs.open() as logs:
    states = [logs.parse(content) for content, _ in job.cuts]
    shown = [(one.id, one.base_end, one.instant, one.extents(logs.first), logs.digest(one)) for one in states]
pickle.dump((shown, [clock for _, clock in job.cuts]), sys.stdout.buffer)
"""


def rebuilt_elsewhere(logs: Logs, states: tuple[CrashState, ...]) -> None:
    """Send a job to another process and see that it has the same states there."""
    scenario = Scenario("sqlite", "ext4", {}, "powercut")
    job = Job(scenario, logs.file, tuple((state.id, Clock.RIGHT) for state in states))
    answer = subprocess.run(
        [sys.executable, "-c", REBUILD], input=pickle.dumps(job), capture_output=True, check=True, timeout=60
    ).stdout
    shown, clocks = pickle.loads(answer)  # noqa: S301 - our own process wrote it
    assert [(s.id, s.base_end, s.instant, s.extents(logs.first), logs.digest(s)) for s in states] == shown
    assert [Clock.RIGHT] * len(states) == clocks
    assert len(states) > 3


def test_a_job_is_the_same_work_in_another_process(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        rebuilt_elsewhere(Logs(log), plan(Fault.TORN, Logs(log), first_entry=-1, states_max=40, seed=1).states)


def test_a_job_of_two_disks_is_the_same_work_in_another_process(tmp_path: Path) -> None:
    run = TwoDisks()
    run.run(STEPS)
    with logs_of(tmp_path / "log", run, 1 << 20) as pair:
        logs = Logs(*(side.log for side in pair.sides.values()), device_begins_bytes=(0, 1 << 20))
        first_entry = logs.first.marks[0].entry_index
        rebuilt_elsewhere(logs, plan(Fault.TWODISK, logs, first_entry=first_entry, states_max=40, seed=1).states)
