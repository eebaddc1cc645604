"""What the host tells the guest of a scenario: all that decides its recording, and nothing else.

Orders travel as one JSON object, to a recorder by QEMU's firmware configuration, to a verifier over the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from rig.contract.devices import Device
from rig.contract.injections import Injection

# What the agent prints when it can take orders, and when it never will.
READY, FAILED = "RIG-READY", "RIG-FAILED"


class Shim(StrEnum):
    """What stands around any engine; an engine may have programs of its own under other words (`Spec.programs`)."""

    NONE = "none"
    # Below it, a library that makes every sync do nothing.
    EATMYDATA = "eatmydata"


# A shim that leaves out one kind of sync is this and the name of the kind.
DROP_PREFIX = "drop-"


@dataclass(frozen=True)
class Orders:
    """One recording, or the recording that crash states are cut from. `settings` are in the engine's own words."""

    engine: str
    # The package that the guest imports for it.
    engine_module: str
    settings: Mapping[str, str]
    filesystem: str
    mount_options: str
    device: Device
    workload: str
    transaction_count: int
    # Mean pause before a transaction, and the pause after the last one.
    think_ms: int
    rest_ms: int
    shim: str
    injection: Injection
    seed: int

    @property
    def message(self) -> dict[str, Any]:
        """Return the orders in JSON's types."""
        return asdict(self) | {"settings": dict(self.settings), "injection": str(self.injection)}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Orders:
        """Return the orders of a message; raise TypeError or ValueError for one that is none."""
        values = {field.name: message[field.name] for field in fields(cls)}
        values["device"] = Device.of(values["device"])
        values["injection"] = Injection(values["injection"])
        return cls(**values)

    @property
    def dropped_sync(self) -> str:
        """Return the kind of sync that is left out, or nothing."""
        return self.shim.removeprefix(DROP_PREFIX) if self.shim.startswith(DROP_PREFIX) else ""
