"""The throw-away disk of a verifier: a copy-on-write layer above a base, all of it in guest RAM."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle

from rig.guest.devices import disks
from rig.guest.devices.devicemapper import SECTOR_BYTES, DeviceMapper, Target

BASE = "/dev/ram0"
_STORES = ("/dev/ram1", "/dev/ram2")
# Disks for the logs of a recovery, see `rig.guest.recovery`.
RECOVERY_LOGS = ("/dev/ram3", "/dev/ram4")
_NAME = "layer"
_CHUNK_SECTORS = 8


class Layer:
    """A copy-on-write layer above a base in guest RAM, renewed for each crash state.

    One device stays for good. Each time it gets a new table on the store that the last layer did not use. Making and
    removing a device for each state would take three times as long.
    """

    def __init__(self, disk_mib: int) -> None:
        self.mapper = DeviceMapper()
        self._make(disk_mib)

    def resize(self, disk_mib: int) -> None:
        """Fit base and layer to a disk of this size; a change of size empties both. Nothing may have them open."""
        if disk_mib * 2048 != self.sector_count:
            self.mapper.remove(_NAME)
            disks.unload_module("brd")
            self._make(disk_mib)

    def _make(self, disk_mib: int) -> None:
        # Not once for the largest disk: each new layer makes a table of exceptions that is as long as its store.
        disks.load_module("brd", f"rd_nr={1 + len(_STORES) + len(RECOVERY_LOGS)} rd_size={disk_mib * 1024}")
        self.sector_count = disk_mib * 2048
        self._targets = cycle(
            Target("snapshot", f"{BASE} {store} N {_CHUNK_SECTORS}", self.sector_count) for store in _STORES
        )
        self._device = self.mapper.create(_NAME, next(self._targets))

    def fresh(self) -> str:
        """Empty the layer and return its node. Raise OSError if the device is still open."""
        if open_count := self.mapper.swap(_NAME, next(self._targets), unsynced=True):
            raise OSError(errno.EBUSY, f"the layer of the last crash state is still open, {open_count} times")
        return self._device

    @contextmanager
    def with_errors(self, device: str, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
        """Give a node that reads like `device` but returns EIO in these ranges (offset, length)."""
        if not ranges:
            yield device
            return
        targets, end = [], 0
        for offset, length in sorted((offset // SECTOR_BYTES, length // SECTOR_BYTES) for offset, length in ranges):
            if offset > end:
                targets.append(Target("linear", f"{device} {end}", offset - end, end))
            targets.append(Target("error", "", length, offset))
            end = offset + length
        if end < self.sector_count:
            targets.append(Target("linear", f"{device} {end}", self.sector_count - end, end))
        try:
            yield self.mapper.create("errors", *targets)
        finally:
            self.mapper.remove("errors")

    @contextmanager
    def parts(self, device: str, first_sectors: int) -> Iterator[tuple[str, str]]:
        """Give two nodes: the first sectors of a device, and the rest."""
        sizes = {"first": (first_sectors, 0), "second": (self.sector_count - first_sectors, first_sectors)}
        with ExitStack() as stack:
            nodes = []
            for name, (count, begin) in sizes.items():
                nodes.append(self.mapper.create(name, Target("linear", f"{device} {begin}", count)))
                stack.callback(self.mapper.remove, name)
            yield nodes[0], nodes[1]
