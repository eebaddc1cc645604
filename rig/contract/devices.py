"""The disks on which a recording can be made: how long each takes, in virtual time, and its atomic unit.

A delay ends at a tick of the guest's clock (dm-delay counts jiffies, and Debian's kernel has 250 a second). If requests
follow each other at once, each takes 4 ms for a delay of 1 to 4 ms, 8 ms for a delay of 5 to 8 ms, and so on. So disks
whose delays end at the same tick are equally fast here, and what takes less than a millisecond takes no time.

Every disk has a volatile write cache, is sent flushes, and keeps no order among writes that were not flushed. The fault
says which part of the cache is lost. With `ssd-plp` use the fault `plp`; so too with an eMMC that declares that it
empties its cache in order (CACHE_FLUSH_POLICY in JESD84-B51).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        Device("none", 0, 0, 0, "a disk that takes no time, to see how long everything else takes"),
        Device(
            "hdd7200",
            4,
            4,
            8,
            "half a turn at 7200 rpm, 4.16 ms; for a flush an average seek to write, 8.2 ms (specification of WD's "
            "Ultrastar DC HC310, 4.5.1)",
        ),
        Device(
            "hdd5400",
            6,
            6,
            13,
            "half a turn at 5400 rpm, 5.5 ms; for a flush an average seek to write, 13 ms (specification of Hitachi's "
            "Travelstar 5K320, 4.4.2)",
        ),
        Device("ssd-sata", 0, 0, 1, "a flush of 1 ms; no measurement of one model. ATA promises no atomic unit"),
        Device(
            "ssd-plp",
            0,
            0,
            0,
            "a flush has nothing to do where capacitors protect the cache; an fsync of an Intel DC P3700 takes 0.14 ms "
            "(Percona, Update on fsync Performance, 2019), which is less than a tick",
        ),
        Device(
            "nvme",
            0,
            0,
            2,
            "an fdatasync of a Samsung 990 PRO takes 1.6 ms (T. Poder, Using pg_test_fsync, 2025); an AWUPF of 0 in "
            "NVM Express: only one block of 512 bytes is written atomically when the power goes",
            atomic_bytes=512,
        ),
        Device(
            "nvme-64k",
            0,
            0,
            2,
            "the same with an AWUPF of 127: 64 KiB are written atomically when the power goes",
            atomic_bytes=1 << 16,
        ),
        Device(
            "emmc",
            0,
            0,
            5,
            "eMMC 5.1 (JESD84-B51) with its cache on and sectors of 512 bytes; Linux sends it FLUSH_CACHE and never a "
            "barrier. A flush of 5 ms; no measurement of one model",
            atomic_bytes=512,
        ),
    )
}
DEFAULT_DEVICE = "ssd-sata"
# Former names of devices, from before there were several of a kind.
_FORMER = {"ssd": "ssd-sata", "ssd-64k": "nvme-64k", "hdd": "hdd7200"}


def device_named(name: str) -> Device:
    """Return a device; raise UsageError naming the choices, or the current name for a former one."""
    if name in _FORMER:
        raise UsageError(f"the device {name!r} is now called {_FORMER[name]!r}")
    if name not in DEVICES:
        raise UsageError(f"unknown device {name!r}; there are: {', '.join(DEVICES)}")
    return DEVICES[name]


def current_name(name: str) -> str:
    """Return what a device of a stored run is called now."""
    return _FORMER.get(name, name)
