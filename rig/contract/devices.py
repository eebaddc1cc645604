"""The disks on which a recording can be made: how long each takes, in virtual time, and its atomic unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rig.contract.errors import UsageError


@dataclass(frozen=True)
class Device:
    """One disk. Delays are milliseconds of the guest's virtual clock."""

    name: str
    read_ms: int
    write_ms: int
    flush_ms: int
    source: str
    # A longer write may land in part, in units of this size.
    atomic_bytes: int = 4096

    @property
    def has_delays(self) -> bool:
        """Whether any request takes time."""
        return bool(self.read_ms or self.write_ms or self.flush_ms)

    @property
    def message(self) -> dict[str, Any]:
        """Return the device as sent to the guest, in JSON's types."""
        return asdict(self)

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Device:
        """Return the device in a message."""
        return cls(**message)


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        Device("none", 0, 0, 0, "a disk that takes no time, to see how long everything else takes"),
        Device("ssd", 0, 0, 1, "a flush of 1 ms, a SATA SSD with power to its cache; no measurement of one model"),
        Device(
            "ssd-64k",
            0,
            0,
            1,
            "the same for a disk that promises to write 64 KiB atomically when the power goes (NVM Express: AWUPF)",
            atomic_bytes=1 << 16,
        ),
        Device("hdd", 4, 4, 8, "half a turn and a seek of a disk at 7200 rpm; no measurement of one model"),
    )
}
DEFAULT_DEVICE = "ssd"


def device_named(name: str) -> Device:
    """Return a device; raise UsageError naming the choices."""
    if name not in DEVICES:
        raise UsageError(f"unknown device {name!r}; there are: {', '.join(DEVICES)}")
    return DEVICES[name]
