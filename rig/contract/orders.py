"""Orders: what the host tells the guest about a scenario, exactly the part that decides its recording.

Orders are one JSON object, passed to a recorder in QEMU's firmware configuration and to a verifier over the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from rig.contract.devices import Device
from rig.contract.injections import Injection
from rig.contract.processors import Processor

# The agent prints one of these when it can take orders, or when it failed to start.
READY, FAILED = "RIG-READY", "RIG-FAILED"
# The key of a message that comes in place of orders: the size of an archive on the recording's disk. The archive adds
# to the code in the guest. The agent loads it and prints one of the words above once more.
ADDED = "added_bytes"


class Shim(StrEnum):
    """The shims for any engine; an engine may name programs of its own by other words (`Spec.programs`)."""

    NONE = "none"
    # Every sync does nothing: by a preloaded library, or by supervision where nothing can be preloaded.
    EATMYDATA = "eatmydata"


# A shim that leaves out one kind of sync is named by this prefix and the kind.
DROP_PREFIX = "drop-"


@dataclass(frozen=True)
class Orders:
    """One recording, or the recording from which crash states are cut. `settings` are in the engine's own words."""

    engine: str
    # The package that the guest imports for the engine.
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
    # What the guest needs to have, see `rig.contract.processors`.
    processor: Processor = Processor.PLAIN

    @property
    def message(self) -> dict[str, Any]:
        """Return the orders in JSON's types."""
        return asdict(self) | {"settings": dict(self.settings), "injection": str(self.injection)}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Orders:
        """Return the orders in a message; raise TypeError or ValueError if they are malformed."""
        values = {field.name: message[field.name] for field in fields(cls)}
        values["device"] = Device.of(values["device"])
        values["injection"] = Injection(values["injection"])
        values["processor"] = Processor(values["processor"])
        return cls(**values)

    @property
    def dropped_sync(self) -> str:
        """Return the kind of sync that is left out, or an empty text."""
        return self.shim.removeprefix(DROP_PREFIX) if self.shim.startswith(DROP_PREFIX) else ""
