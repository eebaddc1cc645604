"""The choices of a cut: every state of a plan is one of them, and every choice is a state that the log allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.explain.choices import WHOLE, Choices
from rig.faults import DiskLetter, Fault, JointState, Logs, StateIdError, WriteLog, plan
from rig.faults.log.submissions import attach
from rig.faults.states.rendering import content
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Op, run_of
from tests.unit.faults.requests import Requests, some_requests
from tests.unit.faults.twodisks import Step, TwoDisks, logs_of, some_steps

FLUSH = [Op("flush-begin"), Op("flush-end")]
OPS = [
    Op("write", 0, 12, 1), Op("fua", 12, 10, 1), *FLUSH, Op("mark"), Op("write", 16, 3, 1), *FLUSH,
    Op("write", 0, 2, 2), Op("write", 8, 9, 2), *FLUSH, Op("write", 24, 1, 3), *FLUSH,
]  # fmt: skip
SECTORS = 8
# The models whose states are choices of whole writes, of units, and of a window's writes.
MODELS = [Fault.POWERCUT, Fault.TORN, Fault.LYINGFLUSH]


@contextmanager
def recorded(disk: Requests) -> Iterator[Logs]:
    """Give the log of a disk, with its account."""
    with TemporaryDirectory(prefix="rig-") as folder:
        disk.end(Path(folder, "log"))
        with WriteLog.open(Path(folder, "log")) as log:
            attach(bytes(disk.records), log)
            yield Logs(log)


@pytest.mark.parametrize("fault", MODELS)
def test_every_state_of_a_plan_is_a_choice_with_the_same_content(tmp_path: Path, fault: Fault) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        logs = Logs(log)
        states = plan(fault, logs, first_entry=-1, states_max=300, seed=1).states
        for state in states:
            choices = Choices.of(logs, state)
            again = choices.state(choices.atoms_of(state))
            assert logs.digest(state) == logs.digest(again)
            assert (state.instant, state.base_end) == (again.instant, again.base_end)
            assert again.id == logs.parse(again.id).id
    assert len(states) >= 8


@given(some_requests(SECTORS))
def test_between_two_cuts_the_first_has_nothing_landed_and_the_next_its_fua_write(disk: Requests) -> None:
    with recorded(disk) as logs:
        for epoch in logs.epochs:
            for count, fua in enumerate(epoch.fuas):
                border = Choices.at_border(logs, epoch, count)
                cut, following = (Choices(logs, epoch, count + more).state(()) for more in (0, 1))
                assert cut == border.state(())
                assert following == border.state([atom for atom in border.atoms if atom.entry == fua])
            assert Choices(logs, epoch, len(epoch.fuas)).atoms == Choices.at_border(logs, epoch, len(epoch.fuas)).atoms


@given(some_requests(SECTORS), st.data())
def test_every_choice_of_a_power_cut_is_a_state_that_the_log_allows(disk: Requests, data: st.DataObject) -> None:
    with recorded(disk) as logs:
        states = plan(Fault.POWERCUT, logs, first_entry=-1, states_max=40, seed=1).states
        if not states:
            return
        state = data.draw(st.sampled_from(states))
        choices = Choices.of(logs, state)
        assert logs.digest(state) == logs.digest(choices.state(choices.atoms_of(state)))
        if choices.epoch.open_sectors:  # then not every choice is shown
            return
        landed = data.draw(st.sets(st.sampled_from(choices.atoms))) if choices.atoms else set()
        chosen = choices.state(landed)
        assert chosen.id == logs.parse(chosen.id).id
        assert landed == choices.atoms_of(chosen)


@given(some_steps(), st.data())
def test_every_choice_of_two_disks_is_proven_or_no_state(steps: list[Step], data: st.DataObject) -> None:
    run = TwoDisks()
    run.run([("", Op("mark")), ("", Op("mark")), *steps])
    with TemporaryDirectory(prefix="rig-") as folder, logs_of(Path(folder, "log"), run) as pair:
        size = DISK_SECTORS * SECTOR
        logs = Logs(*(side.log for side in pair.sides.values()), device_begins_bytes=(0, size))
        states = plan(Fault.TWODISK, logs, first_entry=pair.sides[DiskLetter.A].marks[0], states_max=40, seed=1).states
        if not states:
            return
        state = data.draw(st.sampled_from(states))
        choices = Choices.of(logs, state)
        again = choices.state(choices.atoms_of(state))
        assert logs.digest(state) == logs.digest(again)
        device = content(logs.first, again, 2 * size)
        assert device.tobytes() == b"".join(again.read(logs.first, begin, size) for begin in (0, size))
        landed = data.draw(st.sets(st.sampled_from(choices.atoms))) if choices.atoms else set()
        chosen = choices.state(landed)
        if logs.is_complete(chosen):
            assert isinstance(chosen, JointState)
            assert landed == choices.atoms_of(chosen)
        else:
            with pytest.raises(StateIdError):
                logs.parse(chosen.id)


def test_a_torn_write_is_as_many_atoms_as_it_has_units(tmp_path: Path) -> None:
    run_of(tmp_path / "log", OPS)
    with WriteLog.open(tmp_path / "log") as log:
        state = next(
            one for one in plan(Fault.TORN, Logs(log), first_entry=-1, states_max=300, seed=1).states if one.tears
        )
        choices = Choices.of(Logs(log), state)
        (tear,) = state.tears
        units = [atom for atom in choices.atoms if atom.entry == tear.entry_index]
        assert len(units) == -(-int(log.payload_bytes[tear.entry_index]) // tear.unit_bytes)
        assert all(atom.unit == WHOLE for atom in choices.atoms if atom.entry != tear.entry_index)
        pieces = sorted(piece for atom in units for piece in choices.pieces(atom))
        assert int(log.payload_bytes[tear.entry_index]) == sum(length for _, length in pieces)
