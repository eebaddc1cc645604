"""Orders: what the host tells the guest about a scenario, exactly the part that decides its recording.

Orders are one JSON object, passed to a recorder in QEMU's firmware configuration and to a verifier over the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rig.contract.devices import Device
from rig.contract.injections import Injection

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
# Two shims that no scenario of a matrix has; an explanation records with them. The first only tells all calls;
# transactions after `@` get call stacks as well. The
# second adds syncs of files: after the prefix it lists their roles or paths, with `+` between them. One with `~` before
# it is also synced before a write to another place of the same file. A `*` stands for all files and directories: then
# everything reaches the disk in the order in which the program wrote it.
TELL_CALLS, STACKS_OF = "tell-calls", "@"
ADD_PREFIX, ADD_SEPARATOR, ADD_WITHIN, ADD_EVERYTHING = "add-", "+", "~", "*"
# What an added sync of the directory is called, in place of a role.
DIRECTORY = "directory"


# How a process ends that meets an instruction which its processor lacks.
ILLEGAL = "died by SIGILL"


class Processor(StrEnum):
    """The processors that a guest can have under emulation, by ability: each can do all that the ones before it can."""

    # x86-64 and no more: no SSE4, AVX or BMI. The fastest to emulate, and every engine can use it.
    PLAIN = "plain"
    # All that the emulator knows, without the instructions that read random numbers from the host.
    MODERN = "modern"


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
    # What the guest needs to have.
    processor: Processor = Processor.PLAIN
    # How many transactions the database showed at the end of each earlier life: when it had recovered from its cut.
    lives: tuple[int, ...] = ()
    # For a recovery: the transactions that had returned an error and were never acknowledged.
    failed: tuple[int, ...] = ()
    # The word of another process at work on the file system (`rig.contract.scenario.NEIGHBOURS`); empty for none.
    neighbour: str = ""
    # How many transactions may be in flight at a time, for an engine that asks (`rig.engines.own.ClientsDriver`).
    client_count: int = 1

    @property
    def dropped_sync(self) -> str:
        """Return the kind of sync that is left out, or an empty text."""
        return self.shim.removeprefix(DROP_PREFIX) if self.shim.startswith(DROP_PREFIX) else ""
