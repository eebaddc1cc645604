"""The modelled disks: what each record says."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from rig.contract.devices import DEFAULT_DEVICE, DEVICES, Device, current_name, device_named
from rig.contract.errors import UsageError
from rig.contract.messages import decode

TICK_MS = 4


def ticks(device: Device) -> tuple[int, int, int]:
    """Return how many ticks of the guest's clock each kind of request waits for if they follow each other."""
    read, write, flush = (-(-delay // TICK_MS) for delay in (device.read_ms, device.write_ms, device.flush_ms))
    return read, write, flush


def test_each_device_names_its_source_and_says_where_nothing_was_measured() -> None:
    assert all(one.source for one in DEVICES.values())
    assert {"ssd-sata", "emmc"} == {one.name for one in DEVICES.values() if "no measurement of one model" in one.source}


def test_a_flush_of_the_slower_kind_of_disk_ends_at_a_later_tick() -> None:
    flushes = [ticks(DEVICES[name])[2] for name in ("ssd-plp", "nvme", "emmc", "hdd5400")]
    assert flushes == sorted(set(flushes))
    assert ticks(DEVICES["ssd-sata"]) == ticks(DEVICES["nvme"]) == ticks(DEVICES["nvme-64k"])
    assert all(a <= b for a, b in zip(ticks(DEVICES["hdd7200"]), ticks(DEVICES["hdd5400"]), strict=True))


def test_atomic_units_are_powers_of_two_that_hold_whole_sectors() -> None:
    units = {one.atomic_bytes for one in DEVICES.values()}
    assert all(unit % 512 == 0 and unit & (unit - 1) == 0 for unit in units)
    assert {512, 4096, 65536} == units


@pytest.mark.parametrize(("former", "now"), [("ssd", "ssd-sata"), ("hdd", "hdd7200"), ("ssd-64k", "nvme-64k")])
def test_a_former_name_is_refused_with_the_name_of_today(former: str, now: str) -> None:
    with pytest.raises(UsageError, match=f"the device '{former}' is now called '{now}'"):
        device_named(former)
    assert (now, now) == (current_name(former), current_name(now))
    assert DEVICES[now] is device_named(now)


def test_a_device_arrives_as_it_was_sent() -> None:
    assert DEFAULT_DEVICE in DEVICES
    for one in DEVICES.values():
        assert one == decode(Device, json.loads(json.dumps(asdict(one))))
