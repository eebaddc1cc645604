"""A scenario, which defines one experiment: engine and settings, file system, device, workload, fault, seed.

A `Scenario` is frozen and complete: two equal scenarios on one template give the same recording, bit for bit.
Its `id` is what users type: `{engine}-{filesystem}-{settings}_{fault}`. A workload other than the default is named as
a variant of the settings, for example `wal_full.life`, and a shim after that: `wal_full.life+eatmydata`. A tuning
with a word of its own comes before both: `wal_full.page512`; so do a noisy neighbour, `wal_full.neighbour`, and several
clients of a user's program, `durable.clients4`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from rig.contract.devices import DEFAULT_DEVICE, DEVICES, Device
from rig.contract.faultspecs import SPECS
from rig.contract.orders import DROP_PREFIX, Orders, Processor, Shim

# The workloads that ids do not name: one for databases, and one for engines with transactions of their own.
DEFAULT_WORKLOAD = "ledger"
OWN_WORKLOAD = "own"
# In place of the word of a tuning: another process on the file system syncs a file of its own, or needs so much memory
# that pages are written back early; or transactions of a user's program overlap. The number of clients follows.
NEIGHBOUR, WRITEBACK, CLIENTS = "neighbour", "writeback", "clients"
NEIGHBOURS = (NEIGHBOUR, WRITEBACK)
# The faults under which each is measured. What was written back survives a crash of the operating system without a
# sync, so a control could show little there.
COMPANY_FAULTS = {
    NEIGHBOUR: ("oscrash", "powercut", "torn"),
    WRITEBACK: ("powercut", "torn"),
    CLIENTS: ("oscrash", "powercut", "torn"),
}


def is_default(workload: str) -> bool:
    """Return whether this is a workload with which engines are measured if none is named."""
    return workload in {DEFAULT_WORKLOAD, OWN_WORKLOAD}


def name_of(
    settings: Mapping[str, str], workload: str = DEFAULT_WORKLOAD, shim: str = Shim.NONE, tuned: str = ""
) -> str:
    """Return settings, the word of a tuning, workload and shim as spelled in ids."""
    named = ".".join(filter(None, ("_".join(settings.values()), tuned, "" if is_default(workload) else workload)))
    return named if shim == Shim.NONE else f"{named}+{shim}"


@dataclass(frozen=True)
class WorkloadSpec:
    """Which workload, and how much of it. Think time lets writeback happen between transactions, in virtual time."""

    transaction_count: int = 40
    # Mean pause before a transaction, and the pause after the last one. The latter is longer than the 5 s after which
    # a file system commits by itself, because the last transaction may become durable only then.
    think_ms: int = 1500
    rest_ms: int = 6000
    name: str = DEFAULT_WORKLOAD
    # How many transactions of a user's program may be in flight at a time.
    client_count: int = 1


@dataclass(frozen=True)
class Scenario:
    """One experiment, complete. `settings` maps the engine's own setting names to the engine's own words.

    `tuning` holds further settings of the engine, which matter but are not part of the id, unless they have a word of
    their own, `tuned` (`rig.engines.Tuning`).
    """

    engine: str
    filesystem: str
    settings: Mapping[str, str]
    fault: str
    tuning: Mapping[str, str] = field(default_factory=dict)
    mount_options: str = ""
    device: Device = DEVICES[DEFAULT_DEVICE]
    workload: WorkloadSpec = field(default_factory=WorkloadSpec)
    # A `Shim`, a program of the engine's (`rig.engines.ControlProgram`), or `drop-` and the name of a sync
    # (`rig.engines.syncs`) that reports success without being done.
    shim: str = Shim.NONE
    seed: int = 1
    # The package that the guest imports for the engine.
    engine_module: str = ""
    processor: Processor = Processor.PLAIN
    tuned: str = ""
    # For states of a later life: how many transactions the database showed at the end of each life before.
    lives: tuple[int, ...] = ()
    # The name of the steps of a user's program that all cuts hit; empty for cuts everywhere.
    focus: str = ""

    @property
    def settings_name(self) -> str:
        """Return the settings as spelled in the test id, with tuning, workload and shim if they are named."""
        return name_of(self.settings, self.workload.name, self.shim, self.tuned)

    @property
    def workload_name(self) -> str:
        """Return the name of the workload."""
        return self.workload.name

    @property
    def measured_name(self) -> str:
        """Return what is measured: the engine, or a user's program with its version."""
        return " ".join(filter(None, (self.tuning.get("program", self.engine), self.tuning.get("release", ""))))

    @property
    def all_settings(self) -> dict[str, str]:
        """Return settings and tuning: everything with which the engine is configured."""
        return {**self.tuning, **self.settings}

    @cached_property
    def id(self) -> str:
        """Return the test id."""
        return f"{self.engine}-{self.filesystem}-{self.settings_name}_{self.fault}"

    @property
    def own_name(self) -> str:
        """Return the id and, of a user's program, its name and what it is started with."""
        own = [self.tuning.get("program", "")]
        own += [word for key in ("environment", "arguments") for word in json.loads(self.tuning.get(key, "[]"))]
        return f"{self.id} of {' '.join(own)}" if own[0] else self.id

    @property
    def full_name(self) -> str:
        """Return the id with all that tells two measurements of one id apart, except for seed and workload."""
        return f"{self.id} on {self.device.name} {json.dumps(self.tuning, sort_keys=True)}"

    @property
    def orders(self) -> Orders:
        """Return what the guest must know to make the recording: everything but the fault.

        If the recovered database works on and is cut again, only its later lives are under the shim.
        """
        return Orders(
            engine=self.engine,
            engine_module=self.engine_module,
            settings=self.all_settings,
            filesystem=self.filesystem,
            mount_options=self.mount_options,
            device=self.device,
            workload=self.workload.name,
            transaction_count=self.workload.transaction_count,
            think_ms=self.workload.think_ms,
            rest_ms=self.workload.rest_ms,
            shim=Shim.NONE if SPECS[self.fault].later_count else self.shim,
            injection=SPECS[self.fault].injection,
            seed=self.seed,
            processor=self.processor,
            neighbour=self.tuned if self.tuned in NEIGHBOURS else "",
            client_count=self.workload.client_count,
        )

    @property
    def reopening_orders(self) -> Orders:
        """Return what the guest must know to open the database on a crash state, and to let it work on."""
        return replace(self.orders, shim=self.shim, lives=self.lives)

    @property
    def dropped_sync(self) -> str:
        """Return the name of the sync that this scenario leaves out, or an empty text."""
        return self.shim.removeprefix(DROP_PREFIX) if self.shim.startswith(DROP_PREFIX) else ""

    @property
    def recording_key(self) -> str:
        """Return a digest of the recorded part; scenarios with the same key share one recording."""
        message = asdict(self.orders)
        # Only the first life is recorded here, and what fails is seen only then.
        del message["lives"], message["failed"]
        # As keys were before there were neighbours and clients.
        for name, usual in (("neighbour", ""), ("client_count", 1)):
            if message[name] == usual:
                del message[name]
        return hashlib.blake2b(json.dumps(message, sort_keys=True).encode(), digest_size=8).hexdigest()
