"""Another build of SQLite in the guest: results equal the results of the guest's own build, and name the build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rig.campaign import record
from rig.contract.scenario import Scenario
from rig.engines.builds import Library
from rig.faults import Fault, Logs, plan
from rig.images.image import Image
from rig.machines.argv import Role
from rig.machines.template import Template, template
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from tests.durability import builds
from tests.vm.samples import findings, kinds, open_recording, scenario_of

_STATES_MAX = 24
SCENARIO = scenario_of("wal_normal")


@pytest.fixture(scope="module")
def brought() -> dict[str, Library]:
    return builds.for_the_guest()


@pytest.fixture(scope="module")
def library_verifier(image: Image, brought: dict[str, Library]) -> Iterator[Template]:
    with template(Role.VERIFIER, image, libraries=list(brought.values())) as made:
        yield made


@pytest.fixture(scope="module")
def library_recorder(image: Image, brought: dict[str, Library]) -> Iterator[Template]:
    with template(Role.RECORDER, image, libraries=list(brought.values())) as made:
        yield made


def with_library(scenario: Scenario, library: Library) -> Scenario:
    return replace(scenario, tuning={**scenario.tuning, "library": library.name})


def test_other_builds_judge_the_same_states_as_the_guests_own(
    recorded: Callable[[Scenario], Recording], library_verifier: Template, brought: dict[str, Library]
) -> None:
    with open_recording(recorded(SCENARIO)) as (_, log):
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
