"""Supervised workloads: leaving out a sync loses what it protects, and the syncs of a transaction are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.metrics import loses
from rig.campaign import record
from rig.contract.errors import VmError
from rig.contract.results import Verdict, VerdictKind
from rig.faults import epochs, parse_state
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.recordings.timeline import Timeline
from tests.vm.samples import Recorder, open_recording, scenario_of, verdicts

# Only cut instants, at which everything unflushed is lost.
_PROFILE = replace(matrix.profile("quick"), states_max=1, instants=16, side_states_max=160)


def lost_counts(found: Sequence[Verdict]) -> list[int]:
    return [one.lost for one in found if one.kind is VerdictKind.LOST_SUFFIX]


def test_a_commit_whose_sync_is_left_out_is_lost_as_under_an_fsync_that_does_nothing(
    recorded: Recorder, user_mode: UserMode
) -> None:
    names = ("wal_full", "wal_full+drop-wal-commit", "wal_full+eatmydata")
    made = {name: recorded(scenario_of(name)) for name in names}
    found = {name: verdicts(scenario_of(name), made[name], user_mode, _PROFILE) for name in names}
    assert [] == lost_counts(found["wal_full"])
    assert max(lost_counts(found["wal_full+drop-wal-commit"])) > 1
    # libeatmydata drops the setup's sync too, so there may be no database at all.
    assert any(map(loses, found["wal_full+eatmydata"]))
    # Eight transactions fit into the WAL, so only their commits sync.
    flushes = {name: one.facts.flush_count for name, one in made.items()}
    assert flushes["wal_full"] >= 8 > flushes["wal_full+drop-wal-commit"] == flushes["wal_full+eatmydata"]


def test_a_header_that_was_not_synced_lets_an_old_wal_back_where_only_the_end_of_the_new_one_landed(
    recorded: Recorder, user_mode: UserMode
) -> None:
    """Ticket ff5be73dee of SQLite: recovery overwrites newer content with a prefix of an old, checkpointed WAL."""
    scenario = scenario_of("wal_full+drop-wal-header", fault="torn")
    # A WAL that restarts every third transaction.
    scenario = replace(scenario, tuning={**scenario.tuning, "wal_autocheckpoint": "16"})
    made = recorded(scenario)
    broken = {one.state for one in verdicts(scenario, made, user_mode, _PROFILE) if one.kind.is_damage}
    assert broken
    with open_recording(made) as (_, log):
        drops = Timeline(log.marks).drops
        states = [parse_state(state, log, epochs(log)) for state in broken]
        headers = [entry for entry in range(log.entry_count) if log.payload(entry)[:3] == bytes.fromhex("377f06")]
        for state in states:
            assert any(state.epoch.begin <= drop.entry_index < state.epoch.end for drop in drops)
            (header,) = set(headers) & set(state.epoch.batch)
            assert not any(tear.entry_index == header and 0 in tear.units for tear in state.tears)


def test_the_syncs_of_a_transaction_are_measured_after_a_plain_recording_and_only_there(recorded: Recorder) -> None:
    assert {"journal directory journal database unlink": 12} == recorded(scenario_of("delete_full")).facts.syncs
    wal = recorded(scenario_of("wal_full")).facts.syncs
    assert {"wal", "wal wal", "wal wal database"} == set(wal)
    assert {} == recorded(scenario_of("wal_full+eatmydata")).facts.syncs


def test_a_shim_that_had_nothing_to_drop_voids_the_recording(recorder: Template, tmp_path: Path) -> None:
    # At NORMAL no commit is synced.
    idle = replace(scenario_of("wal_normal"), shim="drop-wal-commit")
    with pytest.raises(VmError, match="the shim drop-wal-commit dropped nothing"):
        record.record(idle, recorder, tmp_path)
    assert [] == list(tmp_path.iterdir())
