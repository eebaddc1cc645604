"""Garbage in a shorn block: it destroys durable bytes next to those being written, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from rig.campaign.verdicts import verdict
from rig.contract.results import Verdict, VerdictKind
from rig.faults import CrashState, Fault, Logs, WriteLog, plan
from rig.faults.log.log import SECTOR_BYTES
from rig.faults.states.damage import Garbage
from rig.faults.states.state import make_state
from rig.machines.pool import Clones
from rig.machines.usermode import UserMode
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline
from tests.vm.samples import Recorder, findings, open_recording, scenario_of

_COUNT = 8


def shorn(log: WriteLog, *, has_neighbour: bool) -> Iterator[CrashState]:
    """Yield states without other writes whose garbage hits durable bytes that the write repeats, or no such bytes.

    Durable bytes at the start of the garbage and zeros after them are what the end of a frame in a WAL looks like.
    """
    first_entry = Timeline(log.marks).setup.entry_index
    for state in plan(Fault.SHORN, Logs(log), first_entry=first_entry, states_max=600, seed=1).states:
        (garbage,) = state.damages
        assert isinstance(garbage, Garbage)
        if state.whole or state.fua_count < len(state.epoch.fuas):
            continue
        skip = garbage.first_sector * SECTOR_BYTES
        place = int(log.offset_bytes[garbage.entry_index]) + skip
        old = make_state(state.epoch, state.fua_count).read(log, place, len(garbage.data()))
        new = bytes(log.payload(garbage.entry_index))[skip : skip + len(old)]
        neighbour = old.rstrip(b"\0")
        if bool(neighbour) is has_neighbour and new.startswith(neighbour) and new != old:
            yield state


def judge(machines: Clones, recorded: Recorder, *, has_neighbour: bool, has_garbage: bool = True) -> list[Verdict]:
    scenario = scenario_of("wal_full", fault="shorn")
    with open_recording(recorded(scenario)) as (_, log):
        states = list(shorn(log, has_neighbour=has_neighbour))
        states = sorted(states[:: max(1, len(states) // _COUNT)], key=lambda state: (state.base_end, state.id))
        if not has_garbage:
            states = [make_state(state.epoch, state.fua_count, tears=state.tears) for state in states]
        found = findings(scenario, machines, log, states)
        timeline = Timeline(log.marks)
        pairs = zip(states, found, strict=True)
        return [verdict(Cut(scenario.id, s, "", s.instant, 0), one, timeline) for s, one in pairs]


def test_garbage_over_the_end_of_a_frame_that_was_synced_loses_it_and_its_checksum_tells(
    user_mode: UserMode, recorded: Recorder
) -> None:
    verdicts = judge(user_mode, recorded, has_neighbour=True)
    lost = [one for one in verdicts if one.kind is VerdictKind.LOST_SUFFIX]
    assert lost, verdicts
    assert {1} == {one.lost for one in lost}
    # Blocks of the file system can look like that too and do not matter here; no database comes back damaged.
    assert not any(one.kind.is_damage for one in verdicts)
    with_old_rest = judge(user_mode, recorded, has_neighbour=True, has_garbage=False)
    assert {VerdictKind.DURABLE} == {one.kind for one in with_old_rest}


def test_garbage_where_nothing_was_before_costs_nothing_that_was_acknowledged(
    user_mode: UserMode, recorded: Recorder
) -> None:
    verdicts = judge(user_mode, recorded, has_neighbour=False)
    assert len(verdicts) >= _COUNT // 2
    assert {VerdictKind.DURABLE} == {one.kind for one in verdicts}, verdicts
    assert max(one.acked for one in verdicts) > 1
