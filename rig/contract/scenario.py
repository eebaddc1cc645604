"""What defines one experiment: engine and settings, file system, device profile, workload, fault, seed.

A `Scenario` is frozen and complete: two equal scenarios on one template give the same recording, bit for bit.
Its `id` is what users type: `sqlite-ext4-wal_normal_powercut`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rig.contract.arms import SPECS


class FileSystem(StrEnum):
    """File systems a database can live on; the value is the spelling in ids and on the command line."""

    EXT4 = "ext4"


class DeviceProfile(StrEnum):
    """How long the device takes for a read, a write and a flush, in virtual time."""

    NONE = "none"
    SSD = "ssd"
    HDD = "hdd"


class Shim(StrEnum):
    """What stands around the engine, beside `drop-KIND`: one of its syncs dropped."""

    NONE = "none"
    # Below it, a library that makes every sync do nothing.
    EATMYDATA = "eatmydata"
    # Above it, a program that trusts the wall clock: see `rig.guest.programs.lastwriter`.
    LASTWRITER = "lastwriter"


DROP_PREFIX = "drop-"


@dataclass(frozen=True)
class Workload:
    """What is done to the database. Think time lets writeback happen between transactions, in virtual time."""

    transaction_count: int = 40
    # Mean pause before a transaction, and the pause after the last one: longer than jbd2's 5 s, which the last
    # acknowledgement of a rollback journal waits for.
    think_ms: int = 1500
    rest_ms: int = 6000


@dataclass(frozen=True)
class Scenario:
    """One experiment, complete. `settings` maps the engine's own setting names to the engine's own words.

    `tuning` holds the engine's further settings, which matter but are no part of the id.
    """

    engine: str
    filesystem: FileSystem
    settings: Mapping[str, str]
    fault: str
    tuning: Mapping[str, str] = field(default_factory=dict)
    mount_options: str = ""
    profile: DeviceProfile = DeviceProfile.SSD
    workload: Workload = field(default_factory=Workload)
    # A `Shim`, or `drop-` and the name of a sync (`rig.engines.syncs`): that one is answered and not done.
    shim: str = Shim.NONE
    seed: int = 1

    @property
    def settings_name(self) -> str:
        """Return the settings as they stand in the test id, such as `wal_normal` or `wal_full+eatmydata`."""
        name = "_".join(self.settings.values())
        return name if self.shim == Shim.NONE else f"{name}+{self.shim}"

    @property
    def id(self) -> str:
        """Return the test id, `{engine}-{filesystem}-{settings}_{fault}`."""
        return f"{self.engine}-{self.filesystem}-{self.settings_name}_{self.fault}"

    @property
    def orders(self) -> dict[str, object]:
        """Return what the guest has to know, which is what decides the recording: everything but the fault."""
        return {
            "engine": self.engine,
            "filesystem": self.filesystem,
            "mount_options": self.mount_options,
            "settings": {**self.tuning, **self.settings},
            "profile": self.profile,
            "shim": self.shim,
            "injection": SPECS[self.fault].injection,
            "seed": self.seed,
            "transaction_count": self.workload.transaction_count,
            "think_ms": self.workload.think_ms,
            "rest_ms": self.workload.rest_ms,
        }

    @property
    def dropped_sync(self) -> str:
        """Return the name of the sync that this scenario leaves out, or nothing."""
        return self.shim.removeprefix(DROP_PREFIX) if self.shim.startswith(DROP_PREFIX) else ""

    @property
    def recording_key(self) -> str:
        """Return a digest of the recorded part; cells with the same key share one recording."""
        return hashlib.blake2b(json.dumps(self.orders, sort_keys=True).encode(), digest_size=8).hexdigest()
