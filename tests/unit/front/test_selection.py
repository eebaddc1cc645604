"""The selection: the scenarios asked for, and the controls of their groups."""

from __future__ import annotations

import pytest

from rig.analysis.judging.outcome import summarise
from rig.front.selection import added_line, chosen, with_controls
from rig.planning import matrix
from tests.unit import samples


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("clockjump", ["delete_off", "wal_full+lastwriter", "wal_off"]),
        ("plp", ["delete_off", "wal_full+eatmydata", "wal_off"]),
        ("processkill", ["memory_off"]),
        ("lyingflush", ["delete_full", "wal_full"]),
        ("bitrot", []),
    ],
)
def test_a_scenario_is_measured_together_with_the_controls_of_its_fault(fault: str, names: list[str]) -> None:
    (scenario,) = matrix.select([f"sqlite-ext4-persist_full_{fault}"])
    measured = with_controls([scenario])
    assert scenario in measured
    assert names == [one.settings_name for one in measured if one != scenario]
    assert {fault} == {one.fault for one in measured}


def test_a_life_has_a_control_of_its_own() -> None:
    measured = with_controls(matrix.select(["sqlite-ext4-persist_full.life_powercut"]))
    assert ["persist_full.life", "wal_full.life+eatmydata"] == [one.settings_name for one in measured]


@pytest.mark.parametrize("profile", matrix.PROFILES.values(), ids=matrix.PROFILES)
def test_what_is_measured_by_default_has_its_controls(profile: matrix.Profile) -> None:
    asked = chosen((), profile)
    measured = with_controls(asked)
    assert asked == measured
    assert "" == added_line(asked, measured)


def test_controls_that_were_asked_for_are_not_added_again() -> None:
    asked = matrix.select(["sqlite-ext4-wal_*_powercut"])
    measured = with_controls(asked)
    assert ["sqlite-ext4-delete_off_powercut"] == [one.id for one in measured if one not in asked]
    assert sorted(one.id for one in measured) == [one.id for one in measured]
    assert added_line(asked, measured).startswith("1 control is measured too (delete_off): ")
    everything = matrix.all_scenarios()
    assert everything == with_controls(everything)


def test_with_its_controls_a_scenario_is_green_and_without_them_it_is_not() -> None:
    """The controls added are those that the judgement needs."""
    (scenario,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    alone = summarise([samples.measured(samples.sqlite("wal", "full"), samples.durable(120))], 100)
    missing = {control.name for control in alone.controls if control.fired is None}
    assert {"delete_off", "wal_off"} <= missing
    assert missing - {"damage"} <= {one.settings_name for one in with_controls([scenario])}
