"""Killed processes: no acknowledged transaction is lost, and kills are noticed if nothing protects a commit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rig.campaign.replay import replay
from rig.campaign.verdicts import live_verdicts
from rig.contract.errors import UsageError
from rig.contract.results import PlanFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from rig.store import Run
from tests.vm.samples import Recorder, open_recording, scenario_of

COUNT = 8
KILLS_MAX = 12


def killed_scenario(settings_name: str) -> Scenario:
    return replace(scenario_of(settings_name, fault="processkill"), workload=WorkloadSpec(COUNT))


def verdicts(recorded: Recording) -> list[Verdict]:
    return live_verdicts("", recorded.facts.live)


@pytest.mark.parametrize("settings_name", ["delete_off", "wal_off"])
def test_a_kill_loses_nothing_although_nothing_was_synced(settings_name: str, recorded: Recorder) -> None:
    made = recorded(killed_scenario(settings_name))
    assert {VerdictKind.DURABLE} == {one.kind for one in verdicts(made)}
    # A transaction that survives the kill in its commit leaves its other kills to later ones.
    assert KILLS_MAX == len(made.facts.live)
    inside = [one for one in made.facts.live if one["issued"] > one["acked"]]
    after = [one for one in made.facts.live if one["issued"] == one["acked"]]
    assert len(inside) >= KILLS_MAX // 2
    assert after
    assert all("before its call" in one["detail"] for one in inside)
    assert all("right after" in one["detail"] for one in after)
    with open_recording(made) as (_, log):
        moments = Counter(moment.kind for moment in Timeline(log.marks).moments)
    # The marks agree: a kill inside a commit is a failed transaction. The last life carries out what is left.
    assert len(inside) == moments["fail"]
    assert len(after) < moments["ack"] <= COUNT
    assert 1 == moments["end"]


def test_a_kill_inside_a_commit_is_seen_where_the_journal_is_in_memory(recorded: Recorder) -> None:
    made = recorded(killed_scenario("memory_off"))
    damaged = [one for one in made.facts.live if one["kind"] != "prefix"]
    assert damaged
    # A damaged database does not end the workload: it is replaced, and all transactions are carried out.
    assert all(one["issued"] > one["acked"] for one in damaged)
    with open_recording(made) as (_, log):
        assert COUNT == max(moment.number for moment in Timeline(log.marks).moments if moment.kind == "ack")
    assert {one.kind for one in verdicts(made)} > {VerdictKind.DURABLE}


def test_a_kill_is_made_to_happen_again(
    recorded: Recorder, recorder: Template, verifier: Template, user_mode: UserMode, tmp_path: Path
) -> None:
    one = killed_scenario("wal_off")
    made = recorded(one)
    run = Run.create(tmp_path / "run", {})
    run.recording_folder(one).parent.mkdir(parents=True)
    run.recording_folder(one).symlink_to(made.folder)
    run.write_plan(one, PlanFacts(0, 0, 0, 0, 0))
    machines = Machines(recorder, verifier, user_mode)
    again = replay(run, one.id, "kill-3", machines)
    assert again.agrees
    assert made.facts.live[2]["detail"] == again.facts["detail"]
    with pytest.raises(UsageError, match=r"'kill-99' is not a finding of .*; there are \d+: kill-1, kill-2, kill-3"):
        replay(run, one.id, "kill-99", machines)
