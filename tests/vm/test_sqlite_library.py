"""Another build of SQLite in the guest: results equal those of the guest's own build, and name the build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.scenario import Scenario
from rig.engines.builds import Library
from rig.faults import Fault, Logs, plan
from rig.machines import record
from rig.machines.argv import Role
from rig.machines.image import Image
from rig.machines.recover import recover
from rig.machines.template import Template, template
from rig.recordings.archive import Recording
from rig.recordings.recoveries import Recoveries, self_contained
from rig.recordings.timeline import Timeline
from tests.durability import builds
from tests.vm.samples import findings, hot, kinds, opened, scenario_of

_STATES_MAX = 24
SCENARIO = scenario_of("wal_normal")


@pytest.fixture(scope="module")
def brought() -> dict[str, Library]:
    return builds.for_the_guest()


@pytest.fixture(scope="module")
def library_verifier(image: Image, brought: dict[str, Library]) -> Iterator[Template]:
    paths = sorted(library.path for library in brought.values())
    with template(Role.VERIFIER, image, libraries=paths) as made:
        yield made


@pytest.fixture(scope="module")
def library_recorder(image: Image, brought: dict[str, Library]) -> Iterator[Template]:
    paths = sorted(library.path for library in brought.values())
    with template(Role.RECORDER, image, libraries=paths) as made:
        yield made


def with_library(scenario: Scenario, library: Library) -> Scenario:
    return replace(scenario, tuning={**scenario.tuning, "library": library.name})


def test_other_builds_judge_the_same_states_as_the_guests_own(
    recorded: Callable[[Scenario], Recording], library_verifier: Template, brought: dict[str, Library]
) -> None:
    with opened(recorded(SCENARIO)) as (_, log):
        first = Timeline(log.marks).setup.entry_index
        planned = plan(Fault.POWERCUT, Logs(log), first_entry=first, states_max=_STATES_MAX, seed=1)
        states = sorted(planned.states, key=lambda state: (state.base_end, state.id))
        own = kinds(findings(SCENARIO, library_verifier, log, states))
        assert len({recovered for kind, recovered in own if kind == "prefix"}) > 1
        for word in ("3.8.9", "apsw==3.51.2.0"):
            assert own == kinds(findings(with_library(SCENARIO, brought[word]), library_verifier, log, states))


def test_a_recording_says_which_build_made_it(
    library_recorder: Template, brought: dict[str, Library], tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario = with_library(scenario_of("delete_full"), brought["apsw==3.51.2.0"])
    made = record.record(scenario, library_recorder, tmp_path_factory.mktemp("made") / "apsw")
    assert ("3.51.2", brought["apsw==3.51.2.0"].name) == (
        made.facts.engine_version.split()[0],
        made.facts.settings["library"],
    )


def test_a_second_cut_finds_a_build_that_removes_its_journal_before_it_has_synced_what_it_restored(
    recorded: Callable[[Scenario], Recording], library_verifier: Template, brought: dict[str, Library], tmp_path: Path
) -> None:
    """The file system must commit the removal by itself: the unmount after a recovery writes the pages first."""
    scenario = scenario_of("delete_full", fault="recoverycut")
    kept = Recoveries(tmp_path)
    with opened(recorded(scenario)) as (_, log):
        state = hot(log)
        for word, is_damaged in (("hot-rollback-unsynced", True), ("twin-partial-checkpoint-synced", False)):
            build = with_library(scenario, brought[word])
            (one,) = recover(build, library_verifier, log, [state])
            assert one
            kept.save(state.id, self_contained(state.id, state, log, one.log), one.digest)
            with kept.opened(state.id) as made:
                cuts = plan(Fault.POWERCUT, made.logs, first_entry=made.first_entry, states_max=60, seed=1).states
                found = findings(build, library_verifier, made.log, cuts)
            assert is_damaged is any(one.kind != "prefix" for one in found)
            kept.remove(state.id)
