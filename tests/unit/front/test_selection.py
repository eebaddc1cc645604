"""The selection: the scenarios asked for, and the controls of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.judging.outcome import summarise
from rig.contract.errors import UsageError
from rig.contract.scenario import WRITEBACK
from rig.front import programs
from rig.front.selection import added_line, select, with_controls
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


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        # Its own syncs swallowed, and the settings of its group that must lose.
        ("mariadb-ext4-fsync_powercut", ["flush2", "fsync+eatmydata"]),
        ("rocksdb-ext4-sync_powercut", ["nosync", "sync+eatmydata"]),
        # No control has these settings, so another one stands in.
        ("mariadb-ext4-flush0_powercut", ["binlog1+eatmydata", "flush2"]),
    ],
)
def test_a_control_by_a_shim_is_measured_for_the_settings_asked_for(asked: str, names: list[str]) -> None:
    scenarios = matrix.select([asked])
    assert names == [one.settings_name for one in with_controls(scenarios) if one not in scenarios]


def test_a_life_has_a_control_of_its_own() -> None:
    measured = with_controls(matrix.select(["sqlite-ext4-persist_full.life_powercut"]))
    assert ["persist_full.life", "wal_full.life+eatmydata"] == [one.settings_name for one in measured]


@pytest.mark.parametrize("profile", matrix.PROFILES.values(), ids=matrix.PROFILES)
def test_what_is_measured_by_default_has_its_controls(profile: matrix.Profile) -> None:
    asked = select((), profile)
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
    alone = summarise([samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(120))], 100)
    missing = {control.name for control in alone.controls if control.fired is None}
    assert {"delete_off", "wal_off"} <= missing
    assert missing - {"damage"} <= {one.settings_name for one in with_controls([scenario])}


@pytest.mark.parametrize(
    ("faults", "workload", "expected"),
    [
        ((), "", ["durable_powercut", "durable.creation_powercut"]),
        (["powercut"], "own", ["durable_powercut"]),
        (["torn"], "creation", ["durable.creation_torn"]),
        (["plp", "secondcut"], "", ["durable_plp", "durable_secondcut"]),
    ],
)
def test_a_program_is_also_cut_while_it_is_made_under_the_faults_that_most_people_mean(
    tmp_path: Path, faults: Sequence[str], workload: str, expected: list[str]
) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    own = programs.select(str(tmp_path / "program"), "ext4", faults, None, controls=False, workload=workload)
    assert [f"program-ext4-{name}" for name in expected] == [one.id for one in own.scenarios]


def test_a_program_with_several_clients_is_measured_with_its_control_where_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    path = str(tmp_path / "program")
    own = programs.select(path, "ext4", (), "atomic", clients=4)
    assert ["program-ext4-atomic.clients4+eatmydata_powercut", "program-ext4-atomic.clients4_powercut"] == [
        scenario.id for scenario in own.scenarios
    ]
    assert "(atomic.clients4+eatmydata)" in own.added
    assert {4} == {scenario.orders.client_count for scenario in own.scenarios}
    assert {4} == {
        scenario.workload.client_count for scenario in matrix.configure(own.scenarios, matrix.profile("quick"))
    }
    with pytest.raises(UsageError, match="4 clients need at least as many --transactions"):
        matrix.configure(own.scenarios, matrix.profile("quick", transactions=3))
    for filesystem, fault, workload in (("ext4", "secondcut", ""), ("nfs", "torn", ""), ("ext4", "torn", "creation")):
        with pytest.raises(UsageError, match="a program has several clients at work, under oscrash, powercut, torn"):
            programs.select(path, filesystem, [fault], None, workload=workload, clients=2)
    alone = [scenario.id for scenario in programs.select(path, "ext4", (), None).scenarios]
    assert alone == [scenario.id for scenario in programs.select(path, "ext4", (), None, clients=1).scenarios]
    for count in (0, 17):
        with pytest.raises(UsageError, match=f"--clients {count}: a program has 1 to 16 clients"):
            programs.select(path, "ext4", (), None, clients=count)
    with pytest.raises(UsageError, match="--clients and --neighbour are measured apart"):
        programs.select(path, "ext4", (), None, clients=2, neighbour="sync")


def test_a_program_beside_a_neighbour_is_measured_at_work_alone_where_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    path = str(tmp_path / "program")
    own = programs.select(path, "ext4", (), "atomic", neighbour="sync")
    assert ["program-ext4-atomic.neighbour+eatmydata_powercut", "program-ext4-atomic.neighbour_powercut"] == [
        one.id for one in own.scenarios
    ]
    assert all(one.orders.neighbour for one in own.scenarios)
    for filesystem, fault, workload in (("ext4", "plp", ""), ("nfs", "torn", ""), ("ext4", "torn", "creation")):
        with pytest.raises(UsageError, match="a program has a neighbour at work, under oscrash, powercut, torn"):
            programs.select(path, filesystem, [fault], None, workload=workload, neighbour="sync")
    with pytest.raises(UsageError, match="a neighbour that writes back at work, under powercut, torn, and on"):
        programs.select(path, "ext4", ["oscrash"], None, neighbour="writeback")


def test_a_whole_measurement_of_a_program_has_its_pages_written_back_early_where_that_is_possible(
    tmp_path: Path,
) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")

    def early(*filesystems: str, fault: str = "powercut", is_whole: bool = True, **others: Any) -> set[str]:
        chosen = programs.select(str(tmp_path / "program"), filesystems, (fault,), None, is_whole=is_whole, **others)
        return {one.id for one in chosen.scenarios if one.tuned == WRITEBACK}

    with_control = {"program-ext4-durable.writeback_powercut", "program-ext4-durable.writeback+eatmydata_powercut"}
    assert with_control == early("ext4", "nfs", "ext2")
    assert not early("ext4", is_whole=False)
    assert not early("ext4", fault="torn")
    assert not early("ext4", clients=2)
    assert not early("ext4", focus="merge")
    assert not early("ext4", workload="own")
