"""Trials of speed in virtual machines: a recorder's clock counts instructions, and the disk has modelled delays.

So a figure is the same on every run and every host. It depends on the software and the model of the disk, and not on
the host's own disk or processor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from rig.contract.devices import Device
from rig.contract.errors import UsageError
from rig.filesystems import FileSystem
from rig.machines.argv import INSTRUCTIONS_PER_S
from rig.machines.template import Template, qemu_version
from rig.speed.session import Survey
from rig.speed.speeds import INSTRUCTIONS
from rig.speed.trials.probe import SyncProbe
from rig.speed.trials.trial import TrialOrders

_LIMIT_S = 3600
# The disk is part of a recorder's memory, and the guest must do with the rest.
_DISK_MIB_MAX = 640


@dataclass(frozen=True)
class InGuest:
    """A file system on a modelled disk, anew for each trial."""

    # Gives the recorder for the module of an engine.
    recorder_of: Callable[[str], Template]
    filesystem: FileSystem
    device: Device
    # The orders of any trial; the bench is surveyed in its machine.
    first: TrialOrders
    disk_mib: int

    def survey(self) -> Survey:
        """Measure a sync, and return the facts about the machine and its disk."""
        answer = self._ask("survey", [self.first])
        device = self.device
        virtual = {
            "filesystem": self.filesystem.word,
            "device": device.name,
            "delays": f"read {device.read_ms}, write {device.write_ms}, flush {device.flush_ms} ms, to ticks of 4 ms",
            "clock": f"{INSTRUCTIONS_PER_S // 10**6} million instructions a second, one processor",
            INSTRUCTIONS: str(INSTRUCTIONS_PER_S),
            "qemu": qemu_version(),
        }
        versions = {"rig": version("powercut-rig"), **answer["versions"]}
        options = answer["options"].split(",")
        return Survey(self.filesystem.kernel_type, options, [], versions, SyncProbe(**answer["probe"]), virtual=virtual)

    def obstacles(self, orders: Mapping[str, TrialOrders]) -> dict[str, str]:
        """Return which trials cannot be carried out here, and why; one machine answers for all trials of an engine."""
        obstacles: dict[str, str] = {}
        for module in dict.fromkeys(order.engine_module for order in orders.values()):
            asked = {arm: order for arm, order in orders.items() if order.engine_module == module and order.workload}
            if asked:
                obstacles |= zip(asked, self._ask("obstacles", list(asked.values()))["obstacles"], strict=True)
        return {arm: obstacles[arm] for arm in orders if obstacles.get(arm)}

    def carry_out(self, orders: TrialOrders) -> dict[str, Any]:
        """Carry out a trial in a machine of its own; return its facts, or `error` with the reason."""
        facts: dict[str, Any] = self._ask("facts", [orders])["facts"]
        return facts

    def _ask(self, what: str, orders: Sequence[TrialOrders]) -> dict[str, Any]:
        asked = {
            "what": what, "orders": [asdict(each) for each in orders], "filesystem": self.filesystem.word,
            "device": asdict(self.device), "size_mib": self.disk_mib,
        }  # fmt: skip
        message = json.dumps({"trial": asked}).encode()
        with self.recorder_of(orders[0].engine_module).clone(orders=message) as machine:
            answer: dict[str, Any] = machine.receive(_LIMIT_S)
        return answer


def disk_mib(filesystem: FileSystem, needed_bytes: int) -> int:
    """Return how large a disk a load gets; raise UsageError if a machine's memory has no room for it."""
    # A file system that copies on write needs room for the copies.
    size_mib = max(filesystem.disk_mib_min, 4 * (needed_bytes >> 20))
    if size_mib > _DISK_MIB_MAX:
        raise UsageError(
            f"this load needs a disk of {size_mib} MiB, and a virtual one has at most {_DISK_MIB_MAX}: "
            "give fewer --transactions or --rows, a smaller --scale of a document, or a real disk with --dir"
        )
    return size_mib
