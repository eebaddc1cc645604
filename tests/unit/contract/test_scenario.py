"""A scenario: its id, and its recording key, which depends on everything but the fault."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from rig.contract.devices import DEVICES
from rig.contract.messages import decode
from rig.contract.orders import Orders, Processor, Shim
from rig.contract.scenario import Scenario, WorkloadSpec

WAL = Scenario("sqlite", "ext4", {"journal_mode": "wal", "synchronous": "normal"}, "powercut", {"a": "1"})

# One other value for each field but the fault.
OTHERS: dict[str, object] = {
    "engine": "other",
    "settings": {"journal_mode": "wal", "synchronous": "full"},
    "tuning": {"a": "2"},
    "mount_options": "data=journal",
    "device": DEVICES["hdd7200"],
    "filesystem": "other",
    "engine_module": "other.engine",
    "workload": WorkloadSpec(41),
    "shim": Shim.EATMYDATA,
    "seed": 2,
    "processor": Processor.MODERN,
}


def test_the_id_is_what_users_type() -> None:
    assert "sqlite-ext4-wal_normal_powercut" == WAL.id
    assert "sqlite-ext4-wal_normal+eatmydata_torn" == replace(WAL, shim=Shim.EATMYDATA, fault="torn").id
    life = replace(WAL, workload=WorkloadSpec(name="life"))
    assert "sqlite-ext4-wal_normal.life_powercut" == life.id
    assert "sqlite-ext4-wal_normal.life+eatmydata_powercut" == replace(life, shim=Shim.EATMYDATA).id


def test_the_fault_alone_does_not_decide_the_recording() -> None:
    assert WAL.recording_key == replace(WAL, fault="torn").recording_key
    assert "fault" not in asdict(WAL.orders)
    # The word of a tuning only names it.
    assert WAL.recording_key == replace(WAL, tuned="page512").recording_key
    # What earlier lives left matters only where their crash states are opened.
    assert WAL.recording_key == replace(WAL, lives=(3,)).recording_key
    # A focus only chooses among the cuts of a recording.
    assert WAL.recording_key == replace(WAL, focus="compaction").recording_key
    assert {field.name for field in fields(Scenario)} == {*OTHERS, "fault", "tuned", "lives", "focus"}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_decides_the_recording(name: str) -> None:
    assert WAL.recording_key != replace(WAL, **{name: OTHERS[name]}).recording_key  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "workload", [WorkloadSpec(41), WorkloadSpec(think_ms=1), WorkloadSpec(rest_ms=1), WorkloadSpec(name="other")]
)
def test_every_part_of_the_workload_decides_the_recording(workload: WorkloadSpec) -> None:
    assert WAL.recording_key != replace(WAL, workload=workload).recording_key


def test_the_recording_does_not_depend_on_the_order_in_which_settings_are_written() -> None:
    turned = replace(WAL, settings=dict(reversed(list(WAL.settings.items()))))
    assert WAL.recording_key == turned.recording_key


def test_a_setting_wins_over_the_tuning_of_the_same_name() -> None:
    settings = replace(WAL, tuning={"synchronous": "off", "page_size": "512"}).orders.settings
    assert {"journal_mode": "wal", "synchronous": "normal", "page_size": "512"} == settings


def test_orders_survive_json() -> None:
    orders = WAL.orders
    assert orders == decode(Orders, json.loads(json.dumps(asdict(orders))))


def test_a_scenario_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        WAL.seed = 2  # type: ignore[misc]
