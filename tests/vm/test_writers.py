"""Several connections of SQLite on a real machine: they overlap at the cut, and the recording is the same each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.campaign.record import record
from rig.contract.scenario import WorkloadSpec
from rig.faults import Fault, Logs, plan
from rig.faults.log.submissions import RECORD
from rig.machines.template import Template
from rig.planning import matrix
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from rig.workloads import situations
from tests.vm.samples import findings

# include/uapi/linux/blktrace_api.h, shifted to the upper half of an action.
_QUEUED, _COMPLETED, _WRITE, _FLUSH, _SYNC, _META = 1, 8, 1 << 17, 1 << 18, 1 << 19, 1 << 28
COUNT = 80


@pytest.fixture(scope="module")
def recording(recorder: Template, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    (scenario,) = matrix.select(["sqlite-ext4-wal_full.writers_powercut"])
    workload = replace(scenario.workload, transaction_count=COUNT)
    assert isinstance(workload, WorkloadSpec)
    return record(replace(scenario, workload=workload), recorder, tmp_path_factory.mktemp("writers"), reproduce=True)


def overlapping_epoch_count(logs: Logs) -> int:
    """Return how many flushes completed over synced data of several processes or threads that was not durable before.

    Data that was submitted while the flush was under way counts too: a cut may leave it without the rest.
    """
    ((begin, length),) = logs.file.traces
    with logs.file.path.open("rb") as file:
        file.seek(begin)
        records = file.read(length)
    count, place = 0, 0
    # By process or thread: the synced writes that no flush took; the same for those that a flush took, until its end.
    unflushed, taken = set[int](), set[int]()
    while place < len(records):
        _, _, _, _, size, action, pid, _, _, _, further = RECORD.unpack_from(records, place)
        place += RECORD.size + further
        event = action & 0xFFFF
        if event == _QUEUED and action & _FLUSH:
            taken, unflushed = taken | unflushed, set()
        elif event == _COMPLETED and action & _FLUSH:
            count += len(taken | unflushed) > 1
            taken = set()
        elif event == _QUEUED and action & _WRITE and action & _SYNC and size and not action & _META:
            unflushed.add(pid)
    return count


def test_other_connections_write_checkpoint_and_read_while_a_commit_is_in_flight(recording: Recording) -> None:
    assert recording.facts.reproduced
    words = {word for word, _, _ in recording.facts.reached}
    assert words >= set(situations.OF_WRITERS)
    with recording.open() as logs:
        timeline = Timeline(logs.first.marks)
        assert COUNT == len(timeline.acks)
        assert overlapping_epoch_count(logs) > 0
        # The block trace shows what was in flight when a flush completed.
        assert any(epoch.ahead_at(len(epoch.fuas)) for epoch in logs.epochs)


def test_however_connections_overlap_each_cut_leaves_a_prefix_with_all_that_was_acknowledged(
    recording: Recording, verifier: Template
) -> None:
    (scenario,) = matrix.select(["sqlite-ext4-wal_full.writers_powercut"])
    scenario = replace(scenario, workload=replace(scenario.workload, transaction_count=COUNT))
    with recording.open() as logs:
        timeline = Timeline(logs.first.marks)
        first = timeline.setup.entry_index
        states = plan(Fault.POWERCUT, logs, first_entry=first, states_max=120, seed=1).states
        found = findings(scenario, verifier, logs.first, states)
    for state, one in zip(states, found, strict=True):
        assert "prefix" == one.kind, (state.id, one.detail)
        assert one.recovered is not None
        assert timeline.acked_count(state.instant) <= one.recovered <= timeline.issued_count(state.instant), state.id
