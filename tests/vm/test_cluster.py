"""A campaign on the workers of a Dask cluster, in trouble: a local run gives the same verdicts, row for row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.campaign.executors import roster
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from tests.vm.cluster_campaign import judge_again, lost_words, measure_in_trouble, rows, wait_for
from tests.vm.samples import SHORT

PROFILE = Profile(
    "small", SHORT.transaction_count, 200, 20, exposure_min=5, repeats="none", side_states_max=80
)  # fmt: skip
IDS = (
    "sqlite-ext4-delete_full_powercut",
    "sqlite-ext4-delete_full_recoverycut",
    "sqlite-ext4-wal_full_powercut",
    "sqlite-ext4-wal_normal_powercut",
    "sqlite-ext4-wal_off_powercut",
    "sqlite-ext4-wal_off_torn",
)
SCENARIOS = [replace(scenario, workload=SHORT) for scenario in matrix.select(IDS)]


def test_a_campaign_loses_and_gains_workers_and_its_rows_are_those_of_a_local_run(
    tmp_path: Path, recorder: Template, verifier: Template, user_mode: UserMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The stopped worker is silent for twice as long.
    monkeypatch.setattr(roster, "_SILENT_LOOKS", 10)
    machines = Machines(recorder, verifier, user_mode)
    run, heard, trouble = measure_in_trouble(tmp_path / "cluster", machines, PROFILE, SCENARIOS, pause_s=20)
    assert {} == run.failures()
    assert {"is gone", "gives no sign of life"} == lost_words(heard), heard.lines
    # The machines of the killed worker died with it.
    assert trouble.orphans
    wait_for(lambda: not [path for path in trouble.orphans if path.exists()])
    theirs = rows(run, SCENARIOS)
    ours = rows(judge_again(run, tmp_path / "local", machines, PROFILE, SCENARIOS), SCENARIOS)
    assert all(ours.values()), {name: counts.total() for name, counts in ours.items()}
    # Counters: a row that was counted twice would differ too.
    assert ours == theirs
