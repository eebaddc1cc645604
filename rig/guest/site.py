"""Where a workload runs in the guest: its orders, its directory, and the devices below it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.engines import Database, load, opener
from rig.filesystems import FileSystem, filesystem_named, holding
from rig.workloads import Work

LOG = "log"
_OWN_FOLDER = "data"


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
        return f"{self.directory}/{_OWN_FOLDER}" if self.is_own else self.directory

    @property
    def is_own(self) -> bool:
        """Return whether the engine's transactions are its own."""
        return load(self.orders.engine_module).own_driver is not None

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
        return Work(self.orders.workload, self.orders.seed, self.orders.transaction_count, skills)

    @property
    def message(self) -> dict[str, Any]:
        """Return the site in JSON's types, to pass it to another program."""
        return {
            "orders": self.orders.message, "directory": self.directory, "device": self.device,
            "device_below": self.device_below, "second_device": self.second_device,
        }  # fmt: skip

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Site:
        """Return the site that a message describes."""
        devices = (message["device"], message["device_below"], message["second_device"])
        return cls(Orders.of(message["orders"]), message["directory"], *devices)
