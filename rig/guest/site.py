"""Where a workload runs in the guest: its orders, its directory, and the devices below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.engines import Database, load, opener
from rig.engines.own import OWN_FOLDER
from rig.filesystems import FileSystem, filesystem_named, holding
from rig.workloads import Work, workload_named

LOG = "log"
# In a later life pauses take real time: the machine that recovers has no virtual clock.
_LATER_THINK_MS = 10


def filesystem_of(orders: Orders) -> FileSystem:
    """Return the file system of orders, with room for as many files as the engine may have."""
    return holding(filesystem_named(orders.filesystem), load(orders.engine_module).spec.file_count)


@dataclass(frozen=True)
class Site:
    """The place of a workload. Device nodes are empty if there is no device below: a sample runs on a tmpfs."""

    orders: Orders
    directory: str
    # The device of the file system, and the device below the layer that can fail.
    device: str = ""
    device_below: str = ""
    # The second disk, if the file system lies on two.
    second_device: str = ""
    # The most transactions of a later life; 0 in the first life, which has all that were ordered.
    later_count: int = 0

    @property
    def filesystem(self) -> FileSystem:
        """Return the file system of the orders."""
        return filesystem_of(self.orders)

    @property
    def has_two_disks(self) -> bool:
        """Return whether the file system lies on two disks."""
        return self.orders.injection is Injection.TWODISK

    @property
    def engine_directory(self) -> str:
        """Return the directory of the engine's files; an engine whose transactions are its own has it to itself."""
        return f"{self.directory}/{OWN_FOLDER}" if self.is_own else self.directory

    @property
    def is_own(self) -> bool:
        """Return whether the engine's transactions are its own."""
        return load(self.orders.engine_module).own_driver is not None

    @property
    def creates(self) -> bool:
        """Return whether the workload makes the database as a transaction."""
        return workload_named(self.orders.workload).CREATES

    def open_database(self) -> Database:
        """Open the database as the program of the orders does."""
        return self._opener()

    @cached_property
    def _opener(self) -> Callable[[], Database]:
        """Cached, because a verifier opens a database for each crash state."""
        return opener(self.orders.engine_module, self.orders.settings, self.orders.shim, self.directory)

    @property
    def work(self) -> Work:
        """Return the workload of the orders, as far as the engine can do it."""
        skills = load(self.orders.engine_module).spec.skills
        return Work(self.orders.workload, self.orders.seed, self.orders.transaction_count, skills, self.orders.lives)

    @property
    def think_ms(self) -> int:
        """Return the mean pause before a transaction, in milliseconds."""
        return _LATER_THINK_MS if self.later_count else self.orders.think_ms

    @property
    def rest_ms(self) -> int:
        """Return the pause after the last transaction, in milliseconds."""
        return 0 if self.later_count else self.orders.rest_ms

    def numbers_after(self, recovered: int) -> range:
        """Return the numbers of the transactions that a life carries out after these."""
        end = self.orders.transaction_count
        return range(recovered + 1, min(end, recovered + (self.later_count or end)) + 1)
