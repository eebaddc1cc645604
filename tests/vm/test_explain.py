"""Explanations on real machines: the right write, file, role, call and missing sync, and a check that agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.explain.explanation import Explanation, explain
from rig.analysis.explain.story import minimal_list, paragraph
from rig.campaign.evidence import of_recording, state_of
from rig.contract.results import Verdict
from rig.contract.scenario import Scenario
from rig.filesystems.roles import ChangeKind
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import cuts, matrix
from rig.planning.matrix import Profile
from tests.vm.samples import Recorder, scenario_of

_PROFILE = replace(matrix.profile("quick"), states_max=120, instants=24, side_states_max=60)
_LIMIT_S = 60


@pytest.fixture(scope="session")
def machines(recorder: Template, verifier: Template, user_mode: UserMode) -> Machines:
    return Machines(recorder, verifier, user_mode)


def explained(scenario: Scenario, recorded: Recorder, machines: Machines, profile: Profile = _PROFILE) -> Explanation:
    """Explain the worst state of a scenario."""
    with of_recording(scenario, recorded(scenario), machines) as evidence:
        planned = cuts.cuts(scenario, profile, evidence.logs, evidence.timeline).cuts
        verdicts = evidence.judge([(cut.state, cut.entry) for cut in planned])
        chosen = worst(verdicts)
        return explain(evidence, state_of(evidence, chosen.state), chosen, _LIMIT_S)


def worst(verdicts: list[Verdict]) -> Verdict:
    broken = [one for one in verdicts if one.kind.is_damage or one.lost]
    assert broken, "nothing is lost, so there is nothing to explain"
    return max(broken, key=lambda one: (one.kind.is_damage, one.lost, one.entry))


def test_delete_at_full_lacks_a_sync_after_the_journal_is_removed(recorded: Recorder, machines: Machines) -> None:
    found = explained(scenario_of("delete_full"), recorded, machines)
    (write,) = found.lost[0]
    removed = [change for change in write.changes if change.kind is ChangeKind.NAME_REMOVED]
    assert ["test.db-journal"] == [change.path for change in removed]
    assert "of the journal" in write.role
    assert (("directory", "unlink", "test.db-journal"),) == tuple(
        (blame.missing, blame.call.name, blame.call.path) for blame in found.blames
    )
    assert found.is_proven
    assert "no sync of the directory follows" in paragraph(found)


def test_wal_at_normal_lacks_a_sync_of_the_frames_of_the_transaction(recorded: Recorder, machines: Machines) -> None:
    scenario = scenario_of("wal_normal")
    # A WAL that restarts every third transaction, so that its file does not grow any more.
    scenario = replace(scenario, tuning={**scenario.tuning, "wal_autocheckpoint": "16"})
    found = explained(scenario, recorded, machines)
    assert found.loss.subject
    for writes in found.lost:
        (write,) = writes
        assert "test.db-wal" == write.path
        assert "frame" in write.role
    first = found.blames[0]
    assert ("wal", "write", found.loss.subject) == (first.missing, first.call.name, first.call.number)
    assert found.is_proven
    assert "sqlite3_step" in first.call.stack, first.call.stack
    assert any(line.startswith("stack of write(test.db-wal") for line in minimal_list(found)), minimal_list(found)


def test_a_wal_that_grows_is_lost_with_the_commit_that_makes_it_longer(recorded: Recorder, machines: Machines) -> None:
    found = explained(scenario_of("wal_normal"), recorded, machines)
    (write,) = found.lost[0]
    assert (ChangeKind.SIZE, "test.db-wal") in [(change.kind, change.path) for change in write.changes]
    assert ("wal", "write") == (found.blames[0].missing, found.blames[0].call.name)
    assert found.is_proven


def test_delete_at_off_lets_pages_reach_the_database_before_their_journal(
    recorded: Recorder, machines: Machines
) -> None:
    scenario = scenario_of("delete_off")
    # With pauses, the pages are written back one by one.
    scenario = replace(scenario, workload=replace(scenario.workload, transaction_count=12, think_ms=2500))
    found = explained(scenario, recorded, machines)
    assert 1 <= len(found.lost[0]) <= 3
    assert found.blames
    assert found.blames[0].missing


def test_persist_at_normal_counts_pages_in_its_header_that_have_not_all_landed(
    recorded: Recorder, machines: Machines
) -> None:
    scenario = scenario_of("persist_normal", fault="torn")
    scenario = replace(scenario, workload=replace(scenario.workload, transaction_count=40))
    # Of 400 torn states 3 to 7 show it with the seeds 1 to 4, and none of 120 with two of them.
    found = explained(scenario, recorded, machines, replace(_PROFILE, states_max=400, side_states_max=400))
    assert {"test.db-journal"} == {write.path for write in found.lost[0]}
    assert any("header" in write.role for writes in found.landed for write in writes)
    first = found.blames[0]
    assert ("journal", True, "write") == (first.missing, first.is_within_file, first.call.name)
    assert found.is_proven
    assert "with a sync of journal between its writes added, 0 of" in paragraph(found).lower()


def test_ext4_with_its_journal_on_a_second_disk_lets_a_sync_pass(recorded: Recorder, machines: Machines) -> None:
    scenario = replace(scenario_of("wal_full", fault="twodisk"), mount_options="")
    with of_recording(scenario, recorded(scenario), machines) as evidence:
        planned = cuts.cuts(scenario, _PROFILE, evidence.logs, evidence.timeline).cuts
        verdicts = evidence.judge([(cut.state, cut.entry) for cut in planned if cut.state.id.startswith("b:")])
        chosen = max(verdicts, key=lambda verdict: verdict.lost)
        found = explain(evidence, state_of(evidence, chosen.state), chosen, _LIMIT_S)
    assert found.loss.subject
    for writes in found.lost:
        (write,) = writes
        assert "test.db-wal" == write.path
        assert "frame" in write.role
    (blame,) = {blame.call.path: blame for blame in found.blames}.values()
    assert ("test.db-wal", "") == (blame.call.path, blame.missing)
    told = paragraph(found)
    assert "Disk a died first, with all that it had not flushed" in told
    assert "A sync of test.db-wal followed and did not help: look at the file system" in told
    assert "dioread_nolock" in told
    # A second sync finds nothing to commit, and then ext4 flushes the disk with the data.
    assert found.is_proven
    assert "test.db-wal" in {row.lane for row in found.drawing.rows}
    assert any(row.what.endswith("on disk b") for row in found.drawing.rows)


def test_wal_at_off_lacks_a_sync_of_the_wal_though_its_blocks_were_never_written(
    recorded: Recorder, machines: Machines
) -> None:
    found = explained(scenario_of("wal_off"), recorded, machines)
    first = found.blames[0]
    assert ("wal", "write", found.loss.subject) == (first.missing, first.call.name, first.call.number)
    assert found.is_proven
    assert "What is gone was written by write(test.db-wal" in paragraph(found)
