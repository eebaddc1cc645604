"""The engines that have a guest image of their own: built on demand, measured, and found out without their syncs.

One small campaign for each: settings that promise to lose nothing, their control, and settings that must lose.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.dossiers import dossier_of
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.promises import promise_for, violates
from rig.analysis.judging.protocol import compare
from rig.campaign import campaign
from rig.campaign.verdicts import live_verdicts
from rig.contract.errors import UsageError
from rig.contract.findings import FindingKind
from rig.contract.results import VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.engines import engine_named
from rig.images import image, recipes
from rig.machines.guests import guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

# In a shorter run a database without syncs is always damaged, and so never comes back whole with a loss.
WORKLOAD = WorkloadSpec(transaction_count=40)
# Little think time, so that an outage ends before the file system's journal aborts.
BRIEF = WorkloadSpec(12, think_ms=20, rest_ms=6000)
TINY = Profile("tiny", WORKLOAD.transaction_count, 40, 10, exposure_min=5, repeats="none", side_states_max=60)


FEW = replace(TINY, states_max=12, instants=6, side_states_max=12)


@pytest.mark.parametrize("name", [pytest.param("leveldb", marks=pytest.mark.representative), "lmdb", "rocksdb"])
def test_an_engine_keeps_its_strictest_promise_and_its_controls_fire_in_its_own_image(
    name: str, tmp_path: Path
) -> None:
    strict = engine_named(name).spec.strict[0]
    bare = dossier_of(name).CONTROLS.must_lose["powercut"]
    wanted = [f"{name}-ext4-{settings}_powercut" for settings in (strict, f"{strict}+eatmydata", *bare)]
    scenarios = [replace(scenario, workload=WORKLOAD) for scenario in matrix.select(wanted)]
    run = Run.create(tmp_path, {"scenarios": wanted})
    with guests() as source:
        campaign.Campaign(run, TINY, source, campaign.Silent()).measure(scenarios)
        assert recipes.of_engine(engine_named(name)).digest in source.of(scenarios[0]).recorder.image
    results, damaged = run.results(wanted)
    assert ({}, []) == (run.failures(), damaged)
    summary = summarise(results, TINY.exposure_min)
    # The control of the other strict settings is not part of this.
    silent = [f"{control.name} {control.what}" for control in summary.controls if control.fired is False]
    assert [] == silent
    judged = {row.outcome.scenario.id: row for row in summary.rows}
    kept = judged[f"{name}-ext4-{strict}_powercut"]
    assert Result.KEPT is kept.judgement.result, kept.judgement.reasons
    assert [""] * len(results) == [compare(row.outcome.measured).difference for row in summary.rows]


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


# How an engine's own words for an error of the disk begin, as a live finding quotes them.
ERRORS = {"lmdb": "after (Disk|Panic)?Error: ", "leveldb": "after IOError: ", "rocksdb": "after Exception: IO error: "}


@pytest.mark.parametrize("fault", ["ioerror-fsync", "diskfull-data"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_engine_names_the_error_of_the_disk_and_loses_nothing_and_the_control_does(
    name: str, fault: str, tmp_path: Path
) -> None:
    strict = engine_named(name).spec.strict[0]
    bare = dossier_of(name).CONTROLS.must_lose[fault]
    wanted = [f"{name}-ext4-{settings}_{fault}" for settings in (strict, *bare)]
    run = Run.create(tmp_path, {"scenarios": wanted})
    with guests() as source:
        scenarios = [replace(scenario, workload=BRIEF) for scenario in matrix.select(wanted)]
        campaign.Campaign(run, FEW, source, campaign.Silent()).measure(scenarios)
    results, damaged = run.results(wanted)
    assert ({}, []) == (run.failures(), damaged)
    summary = summarise(results, exposure_min=1)
    # In so short a run nothing but commits may sync, and the control has commits without.
    fired = {control.name: control.fired for control in summary.controls if control.name != "errors"}
    assert dict.fromkeys(bare, True) == fired
    judged = {row.outcome.scenario.id: row for row in summary.rows}
    kept = judged[wanted[0]]
    assert () == kept.judgement.broken_by
    seen = [one["detail"] for one in kept.outcome.measured.recording.live]
    assert seen, "no error was seen"
    assert not [one for one in kept.outcome.measured.recording.live if one["kind"] == FindingKind.KEPT_OPEN]
    assert [] == [words for words in seen if not re.search(ERRORS[name], words)]


def test_lmdb_with_a_writable_map_dies_where_space_ends_and_the_report_calls_that_broken(tmp_path: Path) -> None:
    """The kernel has no other way to tell a program that writes to memory."""
    (scenario,) = matrix.select(["lmdb-ext4-writemap_diskfull-data"])
    run = Run.create(tmp_path, {"scenarios": [scenario.id]})
    with guests() as source:
        campaign.Campaign(run, FEW, source, campaign.Silent()).measure([replace(scenario, workload=BRIEF)])
    (result,) = run.results([scenario.id])[0]
    died = [one for one in live_verdicts(scenario.id, result.recording.live) if one.kind is VerdictKind.DIED]
    assert died
    assert all("died by SIGBUS" in one.detail for one in died)
    promise = promise_for(scenario.engine, scenario.settings, scenario.fault, scenario.shim)
    assert promise
    assert all(violates(promise, one) for one in died)


def test_a_package_that_does_not_exist_is_named_with_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    odd = replace(recipes.recipe(), name="odd", packages=("no-such-log",))
    words = "the guest image odd cannot be built: Debian trixie has no package 'no-such-log'"
    with pytest.raises(UsageError, match=words):
        image.build(odd)
    assert [] == image.images()
