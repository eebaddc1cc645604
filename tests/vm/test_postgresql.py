"""The server in its own image: made, killed and cut; slow to start under emulation, so with few states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.protocol import compare
from rig.campaign import campaign, record
from rig.campaign.verdicts import live_verdicts
from rig.contract.results import VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.machines.guests import Guests, guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

TINY = Profile("tiny", 8, 8, 6, exposure_min=3, repeats="none", side_states_max=6)


@pytest.fixture(scope="module")
def source() -> Iterator[Guests]:
    with guests() as found:
        yield found


def scenario_of(name: str, transaction_count: int = 8) -> Scenario:
    (scenario,) = matrix.select([f"postgresql-ext4-{name}"])
    return replace(scenario, workload=WorkloadSpec(transaction_count))


def test_the_server_keeps_what_it_acknowledged_and_loses_it_without_its_syncs(source: Guests, tmp_path: Path) -> None:
    scenarios = [scenario_of(f"{name}_powercut") for name in ("default", "default+eatmydata", "async")]
    ids = [one.id for one in scenarios]
    run = Run.create(tmp_path, {"scenarios": ids})
    campaign.Campaign(run, TINY, source, campaign.Silent()).measure(scenarios)
    results, damaged = run.results(ids)
    assert ({}, []) == (run.failures(), damaged)
    summary = summarise(results, TINY.exposure_min)
    assert [] == [f"{control.name} {control.what}" for control in summary.controls if control.fired is False]
    judged = {row.outcome.scenario.id: row for row in summary.rows}
    for name in ("default", "async"):
        row = judged[f"postgresql-ext4-{name}_powercut"]
        assert Result.KEPT is row.judgement.result, row.judgement.reasons
        assert "" == compare(row.outcome.measured).difference


def test_a_killed_server_loses_only_what_its_log_had_in_memory(source: Guests, tmp_path: Path) -> None:
    found = {}
    for name in ("default", "async"):
        scenario = scenario_of(f"{name}_processkill", 3)
        made = record.record(scenario, source.of(scenario).recorder, tmp_path / name)
        found[name] = {one.kind for one in live_verdicts("", made.facts.live)}
    assert {VerdictKind.DURABLE} == found["default"]
    assert {VerdictKind.LOST_SUFFIX} <= found["async"] <= {VerdictKind.LOST_SUFFIX, VerdictKind.DURABLE}
