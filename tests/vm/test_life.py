"""The workload `life` on real machines: recorded twice the same, cut without a false alarm, and with teeth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.campaign import record
from rig.contract.results import VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines.sqlite import situations as of_sqlite
from rig.engines.sqlite.spec import SPEC
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.recordings import archive
from rig.workloads import situations
from rig.workloads.life import ROUND
from tests.vm.samples import Recorder, two_agree, verdicts

# Two rounds: every kind of transaction and of event comes up twice.
_LIFE = WorkloadSpec(transaction_count=2 * ROUND, think_ms=200, rest_ms=6000, name="life")
_PROFILE = Profile("life", _LIFE.transaction_count, 100, 30, exposure_min=40, repeats="none")


def scenario_of(settings_name: str) -> Scenario:
    (scenario,) = matrix.select([f"sqlite-ext4-{settings_name}_powercut"])
    return replace(scenario, workload=_LIFE)


def test_a_life_is_recorded_twice_the_same_bit_for_bit(recorder: Template, recorded: Recorder) -> None:
    """Forks, further connections and readers included."""
    scenario = scenario_of("wal_full.life")
    recording = recorded(scenario)
    told, parts = record.run(scenario, recorder)
    with recording.unpack() as file:
        kept = [file.path.read_bytes()[: len(parts[0])]]
    assert parts == kept or two_agree(kept, lambda: record.run(scenario, recorder)[1])
    assert 0 == told["root_reads"]
    assert recording == archive.load(recording.folder)


@pytest.mark.parametrize(("settings_name", "lost_max"), [("wal_full.life", 0), ("delete_full.life", 1)])
def test_a_life_is_cut_without_a_false_alarm(
    settings_name: str, lost_max: int, recorded: Recorder, user_mode: UserMode
) -> None:
    scenario = scenario_of(settings_name)
    recording = recorded(scenario)
    found = verdicts(scenario, recording, user_mode, _PROFILE)
    assert {VerdictKind.DURABLE} | ({VerdictKind.LOST_SUFFIX} if lost_max else set()) == {one.kind for one in found}
    assert lost_max == max(one.lost for one in found)
    reached = {word for word, _, _ in recording.facts.reached}
    is_wal = scenario.settings["journal_mode"] == "wal"
    assert {*situations.OF_TRANSACTIONS, of_sqlite.SPILLED} < reached
    every = set(situations.of_events(SPEC.events))
    assert every - reached == {word for word in recording.facts.skipped if word in every and word not in reached}
    assert is_wal is not bool(every - reached)
    met = {word for one in found for word in one.met.split(", ") if word}
    assert ({of_sqlite.LOG, of_sqlite.OLDER} if is_wal else {of_sqlite.HOT}) <= met <= set(SPEC.met)
    # Crash states fall into the midst of transactions, and of most events.
    cut = {word for word, first, last in recording.facts.reached for one in found if first < one.entry <= last}
    assert {situations.SCHEMA, situations.UNDONE} <= cut
    assert 2 * len(cut & every) > len(reached & every)


def test_a_life_without_syncs_loses_and_is_damaged(recorded: Recorder, user_mode: UserMode) -> None:
    scenario = scenario_of("wal_full.life+eatmydata")
    found = verdicts(scenario, recorded(scenario), user_mode, _PROFILE)
    assert any(one.lost for one in found)
    assert any(one.kind.is_damage for one in found)
