"""A file system: data with which the host plans, and what the guest does with a device.

A variant, the same file system with other options, is part of the word in ids: `NAME.VARIANT`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True)
class FileSystem(ABC):
    """One file system or variant. Devices are device nodes in the guest."""

    # The word in ids, and the type that mount(2) expects.
    word: str
    kernel_type: str
    # The options that every mount uses, and the further options that a fault needs: fault -> options.
    mount_options: str = ""
    options_by_fault: Mapping[str, str] = field(default_factory=lambda: {"discard": "discard"})
    # Words that `mounted_with` must hold; without one of them a recording is void.
    reads_back: tuple[str, ...] = ()
    # The faults under which an engine can promise nothing on it: fault -> why.
    unsafe: Mapping[str, str] = field(default_factory=dict)
    # Whether a crash leaves the files as they were at one moment, even what was written without a sync.
    keeps_order: bool = False
    # Whether FIEMAP says where on the device a file is; the cuts of a recovery are chosen by that.
    maps_files: bool = True
    # Whether it is measured if no scenario is named.
    is_default: bool = False
    # The size of the smallest usable disk; of both together if it needs two.
    disk_mib_min: int = 64
    # The kernel modules of its driver, each after those that it needs; none if it is built in.
    modules: tuple[str, ...] = ()
    # The kernel that has its driver, a file in `vm-images/kernels`; empty for the base image's kernel.
    kernel: str = ""

    @abstractmethod
    def make(self, device: str) -> None:
        """Make it on a device; write everything at once and nothing random, so that a recording is complete."""

    @abstractmethod
    def made_as(self, device: str) -> str:
        """Return how it was made, read from an unmounted device."""

    @abstractmethod
    def mounted_with(self, device: str) -> str:
        """Return the options of a mounted device as the kernel lists them, separated by commas."""

    @abstractmethod
    def damage(self, device: str) -> str:
        """Return what its own check reports for an unmounted device; empty if clean."""

    @abstractmethod
    def repair(self, device: str) -> str:
        """Repair an unmounted device as an administrator would; return the tool's report."""

    @abstractmethod
    def error_count(self, device: str) -> int:
        """Return how many errors it has counted on a mounted device.

        A file system that keeps no count looks into `rig.filesystems.kernel.messages`, which begin with the mount.
        """


@runtime_checkable
class Aliased(Protocol):
    """What a file system offers if not every kernel mounts its format with the same driver under `kernel_type`."""

    @property
    def checked_as(self) -> str:
        """Return the type under which every kernel mounts a crash state of it with the driver that recorded it."""


@runtime_checkable
class Unjournaled(Protocol):
    """What a file system offers if mounting it recovers nothing, so that it must be repaired first after a crash."""

    def recover(self, device: str) -> str:
        """Repair an unmounted device as a machine does when it boots; return what was wrong, empty if nothing."""


@runtime_checkable
class Attributed(Protocol):
    """What a file system offers if what makes the variant is an attribute of the directory that holds the database."""

    @property
    def attributes(self) -> str:
        """Return what `attributes_below` must read back; otherwise a recording is void."""

    def set_attributes(self, directory: str) -> None:
        """Give an empty directory the attribute."""

    def attributes_below(self, directory: str) -> str:
        """Return what a directory and everything below it have."""


@runtime_checkable
class Numbered(Protocol):
    """What a file system offers if the number of files that it has room for is chosen when it is made."""

    def holding(self, file_count: int) -> Self:
        """Return the same file system with room for at least `file_count` files."""


@runtime_checkable
class Served(Protocol):
    """What a file system offers if programs reach it through a server, which runs in the same machine.

    The device has the server's own file system. A crash ends the programs as well; a new client then sees what the
    server's file system holds, so crash states are judged there, without a server.
    """

    @property
    def serving_modules(self) -> tuple[str, ...]:
        """Return the kernel modules of server and client, each after those that it needs."""

    @property
    def syncs_on_close(self) -> bool:
        """Return whether to close a file, or to release a lock on it, makes durable what was written to it."""

    def serve(self, exported: str, directory: str) -> None:
        """Start the server, have it export what is mounted at one directory, and mount that at another as a client."""

    def join(self, directory: str) -> None:
        """Mount what the server exports at another directory, as another host, which shares no cache with the first."""

    def stop(self) -> None:
        """Stop the server, which no client has mounted any more; then what it exported can be unmounted."""

    def isolate(self) -> None:
        """Cut the server off from its clients: nothing that it still says will ever reach them."""

    def revive(self, exported: str) -> None:
        """Start an isolated server that was stopped, for the clients that it had; it remembers only who they are."""


@runtime_checkable
class TwoDisks(Protocol):
    """What a file system offers if it can lie on two disks. Both are recorded, and cut at different instants."""

    @property
    def second_disk_mib(self) -> int:
        """Return the size of the second disk; the first has the rest of `disk_mib_min`."""

    def make_on_two(self, first: str, second: str, first_mib: int) -> None:
        """Make it on both disks; the first disk has `first_mib`."""

    def unite(self, first: str, second: str) -> AbstractContextManager[tuple[str, str]]:
        """Give, for the length of a block, the device to mount and the options with which both disks are mounted."""

    def damage_on_two(self, device: str, second: str) -> str:
        """Return what its own check reports for an unmounted device that `unite` gave, and the second disk."""


@runtime_checkable
class Mirrored(TwoDisks, Protocol):
    """What a file system offers if it always lies on two disks, each with a copy of everything."""

    @property
    def knows_copies(self) -> bool:
        """Return whether it knows which copy is right: then an error that it counts harmed one copy and was mended.

        This holds if what was read is right; otherwise its errors are damage, as anywhere.
        """
