"""The engines that have a guest image of their own: built on demand, measured, and found out without their syncs.

One small campaign for each: settings that promise to lose nothing, their control, and settings that must lose.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.dossiers import dossier_of
from rig.analysis.outcome import Result, summarise
from rig.analysis.protocol import compare
from rig.contract.errors import UsageError
from rig.contract.results import VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.engines import named
from rig.machines import campaign, image, recipes
from rig.machines.guests import guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

# In a shorter run a database without syncs is always damaged, and so never comes back whole with a loss.
WORKLOAD = WorkloadSpec(transaction_count=40)
TINY = Profile("tiny", WORKLOAD.transaction_count, 60, 20, exposure_min=5, reproduce_all=False, side_states_max=160)


@pytest.mark.parametrize("name", ["leveldb", "lmdb", "rocksdb"])
def test_an_engine_keeps_its_strictest_promise_and_its_controls_fire_in_its_own_image(
    name: str, tmp_path: Path
) -> None:
    strict = named(name).spec.strict[0]
    bare = dossier_of(name).CONTROLS.must_lose["powercut"]
    wanted = [f"{name}-ext4-{settings}_powercut" for settings in (strict, f"{strict}+eatmydata", *bare)]
    scenarios = [replace(scenario, workload=WORKLOAD) for scenario in matrix.select(wanted)]
    run = Run.create(tmp_path, {"scenarios": wanted})
    with guests() as source:
        campaign.Campaign(run, TINY, source, campaign.Silent()).measure(scenarios)
        assert recipes.of_engine(named(name)).digest in source.of(scenarios[0]).recorder.image
    results, damaged = run.results(wanted)
    assert ({}, []) == (run.failures(), damaged)
    summary = summarise(results, TINY.exposure_min)
    # The control of the other strict settings is not part of this.
    silent = [f"{control.name} {control.what}" for control in summary.controls if control.fired is False]
    assert [] == silent
    judged = {row.outcome.scenario.id: row for row in summary.rows}
    kept = judged[f"{name}-ext4-{strict}_powercut"]
    assert Result.KEPT is kept.judgement.result, kept.judgement.reasons
    assert [""] * len(results) == [compare(row.outcome.scenario).difference for row in summary.rows]


def test_rocksdb_closes_all_column_families_as_one(tmp_path: Path) -> None:
    """Its binding would flush one after the other, which breaks what atomic_flush promises in many states."""
    (scenario,) = matrix.select(["rocksdb-ext4-atomicflush_powercut"])
    run = Run.create(tmp_path, {"scenarios": [scenario.id]})
    with guests() as source:
        campaign.Campaign(run, TINY, source, campaign.Silent()).measure([replace(scenario, workload=WORKLOAD)])
    verdicts, damaged = run.verdicts(scenario.id)
    assert [] == damaged
    kinds = {verdict.kind for verdict in verdicts}
    assert {VerdictKind.LOST_SUFFIX} <= kinds <= {VerdictKind.LOST_SUFFIX, VerdictKind.DURABLE}


def test_a_package_that_does_not_exist_is_named_with_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    odd = replace(image.recipe(), name="odd", packages=("no-such-log",))
    words = "the guest image odd cannot be built: Debian trixie has no package 'no-such-log'"
    with pytest.raises(UsageError, match=words):
        image.build(odd)
    assert [] == image.images()
