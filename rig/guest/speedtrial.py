"""Carry out one trial of speed in this guest, on a file system of its own, in virtual time.

The disk is the same as in a recording, without the log: in guest RAM, with the delays of the device. See
`rig.guest.devices.stack`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rig.contract.devices import Device
from rig.contract.messages import decode
from rig.engines import load
from rig.filesystems import filesystem_named, furnish, holding
from rig.guest.devices import disks, mounts, serving
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import delayed_disk
from rig.guest.watch.forks import Fork
from rig.guest.watch.patience import Limits
from rig.speed.trials import trial
from rig.speed.trials.busy import pollers
from rig.speed.trials.probe import probe
from rig.speed.trials.trial import TrialOrders

# In virtual time. A document's own workload may take minutes of it, and each look wakes the machine.
_LIMITS = Limits(processor_s=10_000, wall_s=100_000, memory_mib=600, look_s=10)


def answer(
    what: str, orders: Sequence[Mapping[str, Any]], filesystem: str, device: Mapping[str, Any], size_mib: int
) -> Any:
    """Return what is asked for: the `survey` of the bench, the `obstacles` of all orders, or the facts of one trial.

    All orders are for one engine.
    """
    asked = [decode(TrialOrders, each) for each in orders]
    modelled = decode(Device, device)
    with _mount(asked[0], filesystem, modelled, size_mib) as (directory, disk, options):
        if what == "survey":
            return _survey(directory, disk, options)
        if what == "obstacles":
            return {"obstacles": [trial.obstacle(each, directory) for each in asked]}
        (order,) = asked
        facts = _apart(lambda: trial.carry_out(order, directory, [disk]))
        if modelled.has_delays and not pollers():
            # No thread that polls during delays is visible, so its time cannot be subtracted.
            facts["busy_ns"] = None
        return {"facts": facts}


@contextmanager
def _mount(orders: TrialOrders, word: str, device: Device, size_mib: int) -> Iterator[tuple[str, str, str]]:
    """Give the directory of a new file system, the sysfs folder of its disk, and how it is mounted."""
    filesystem = holding(filesystem_named(word), load(orders.engine_module).spec.file_count)
    serving.require_modules(filesystem)
    try:
        with delayed_disk(DeviceMapper(), device, size_mib) as (disk, node):
            filesystem.make(node)
            with mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as directory:
                furnish(filesystem, directory)
                disks.settle(node)
                with serving.serve(filesystem, directory):
                    yield directory, f"/sys/block/{Path(disk).name}", filesystem.mounted_with(node)
    finally:
        disks.remove_cached_disks()


def _survey(directory: str, disk: str, options: str) -> dict[str, Any]:
    return {
        "probe": asdict(probe(Path(directory), [Path(disk)])),
        "options": options,
        "versions": {"python": platform.python_version(), "kernel": platform.release(), "machine": platform.machine()},
    }


def _apart(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a fork measured, or `error` with the reason: an engine that dies must not kill us too."""
    ending = Fork(lambda send: send(measured()), _LIMITS).wait()
    if ending.exit_code or not ending.messages:
        return {"error": ending.why.strip().splitlines()[-1]}
    (facts,) = ending.messages
    return dict(facts)
