"""What is measured if no scenario is named."""

from __future__ import annotations

import pytest

from rig.analysis.dossiers import control_settings
from rig.engines import engine_named
from rig.planning import defaults, matrix


@pytest.mark.parametrize("fault", ["life_torn", "life_recoverycut", "writers_powercut", "secondcut", "killcut"])
def test_a_build_of_the_user_is_looked_at_in_more_ways(fault: str) -> None:
    quick = matrix.profile("quick")
    usual = {scenario.id for scenario in defaults.default_scenarios(quick, control_settings)}
    more = {scenario.id for scenario in defaults.default_scenarios(quick, control_settings, is_build=True)} - usual
    assert not usual & more
    assert {f"sqlite-ext4-{name}{'.' if '_' in fault else '_'}{fault}" for name in ("delete_full", "wal_full")} <= more


def test_later_lives_of_a_walk_are_measured_of_the_cross_checks_with_a_promise_alone() -> None:
    build = defaults.default_scenarios(matrix.profile("quick"), control_settings, is_build=True)
    walks = {scenario.id for scenario in build if ".life" in scenario.id and scenario.fault == "secondcut"}
    assert {"sqlite-ext4-delete_full.life_secondcut", "sqlite-ext4-wal_full.life_secondcut"} == {
        name for name in walks if "sqlite" in name and "eatmydata" not in name
    }


def test_a_whole_matrix_has_all_that_a_build_has() -> None:
    nightly, quick = (matrix.profile(name) for name in ("nightly", "quick"))
    whole = {scenario.id for scenario in defaults.default_scenarios(nightly, control_settings)}
    build = {scenario.id for scenario in defaults.default_scenarios(quick, control_settings, is_build=True)}
    assert build <= whole


def test_settings_that_promise_nothing_of_their_own_are_not_looked_at_further() -> None:
    quick = matrix.profile("quick")
    build = defaults.default_scenarios(quick, control_settings, is_build=True)
    spec = engine_named("sqlite").spec
    further = [scenario for scenario in build if scenario.fault == "secondcut"]
    assert further
    assert not any(spec.is_unprotected(scenario.settings) for scenario in further)
    assert not any(scenario.settings_name in spec.same_as for scenario in further)


def test_more_states_are_planned_of_a_workload_that_goes_through_more_where_a_state_costs_little() -> None:
    names = [
        "sqlite-ext4-wal_full_powercut",
        "sqlite-ext4-wal_full.life_powercut",
        "mariadb-ext4-default.life_powercut",
    ]
    plain, life, server = (matrix.select([name])[0] for name in names)
    quick = matrix.profile("quick")
    assert [160, 480, 160] == [quick.states_max_of(scenario) for scenario in (plain, life, server)]
    (killed,) = matrix.select(["sqlite-ext4-wal_full.life_recoverycut"])
    assert quick.side_states_max == quick.states_max_of(killed)
    # Who asks for a number of states gets it.
    assert [200, 200] == [matrix.profile("quick", 200).states_max_of(scenario) for scenario in (plain, life)]
