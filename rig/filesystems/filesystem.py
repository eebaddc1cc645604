"""What a file system is to the rig: data that the host plans with, and what the guest does with a device.

A variant is a part of the word in ids, such as `NAME.VARIANT`: other options of the same file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class FileSystem(Protocol):
    """One file system or variant of one. Devices are nodes in the guest."""

    @property
    def word(self) -> str:
        """Return the word in ids."""

    @property
    def kernel_type(self) -> str:
        """Return what mount(2) calls it."""

    @property
    def disk_mib_min(self) -> int:
        """Return the size of the smallest disk on which it makes sense."""

    @property
    def mount_options(self) -> str:
        """Return the options with which it is always mounted."""

    @property
    def options_by_fault(self) -> Mapping[str, str]:
        """Return the further options that a fault needs: fault -> options. Faults without any are left out."""

    def make(self, device: str) -> None:
        """Make it on a device; all is written now and nothing is random, so that a recording holds all there is."""

    def damage(self, device: str) -> str:
        """Return what its own check says of an unmounted device; empty when it is clean."""

    def repair(self, device: str) -> str:
        """Repair an unmounted device as an administrator would; return what was done and said."""

    def error_count(self, device: str) -> int:
        """Return how many errors it has noted on a mounted device."""


@runtime_checkable
class JournalDisk(Protocol):
    """What a file system offers whose journal can have a disk of its own."""

    def make_with_journal(self, device: str, journal: str, data_mib: int) -> None:
        """Make it so, taking up so much of the device."""

    def journal_option(self, journal: str) -> str:
        """Return the mount option that names the journal's disk."""

    def damage_with_journal(self, device: str, journal: str) -> str:
        """Return what its own check says of an unmounted device whose journal is elsewhere."""
