"""The devices below a recorded file system, built and taken down in one place.

From below: null_blk with a write cache; dm-delay with the device's delays, left out where it has none; for live cuts a
layer that cuts; dm-log-writes; for the error arm a layer that can fail; then the file system. Everything is in guest
RAM, so that nothing outside decides when a request completes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from rig.contract.devices import Device
from rig.contract.geometry import DISK_MIB
from rig.guest.devices import disks
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.devices.faultlayer import FaultLayer

LOG_MIB = 640
CUT = "cut"
# By number of the disk.
LOGS = ("log", "log-b")


@dataclass
class Stack:
    """One disk with all that stands above it; nodes. The last two are known once it has been taken down."""

    disk: str
    # What the cutting layer and the log are on.
    delayed: str
    # What the log is on: the cutting layer where there is one.
    below_log: str
    log: str
    # What a file system is made on.
    top: str
    log_disk: str
    # The log's status line: how many sectors it took.
    status: str = ""
    # The requests that the disk counted.
    counts: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def disks_in_ram(count: int) -> Iterator[None]:
    """Have room for so many disks and their logs for the length of a block; the memory is free afterwards."""
    disks.load_module("brd", f"rd_nr={count} rd_size={LOG_MIB * 1024}")
    try:
        yield
    finally:
        disks.remove_cached_disks()
        disks.unload_module("brd")


@contextmanager
def stacked(
    mapper: DeviceMapper,
    device: Device,
    *,
    number: int = 0,
    size_mib: int = DISK_MIB,
    can_cut: bool = False,
    can_fail: bool = False,
) -> Iterator[Stack]:
    """Build the devices of disk `number` for the length of a block; raise RuntimeError if its log is full then."""
    sector_count, log_disk = size_mib * 2048, f"/dev/ram{number}"
    with ExitStack() as layers:
        disk = disks.add_cached_disk(number, size_mib)
        delayed = disk
        if device.has_delays:
            target = Target("delay", _delay_params(disk, device), sector_count)
            delayed = layers.enter_context(mapper.created(f"delay{number}", target))
        below_log = delayed
        if can_cut:
            below_log = layers.enter_context(mapper.created(CUT, Target("linear", f"{delayed} 0", sector_count)))
        stack = Stack(disk, delayed, below_log, "", "", log_disk)
        log = logged(mapper, LOGS[number], below_log, log_disk, sector_count=sector_count, stack=stack)
        stack.log = layers.enter_context(log)
        stack.top = layers.enter_context(FaultLayer(mapper, stack.log).created()) if can_fail else stack.log
        for node in {disk, delayed, below_log, stack.log, stack.top}:
            disks.require_write_cache(node)
        yield stack


@contextmanager
def logged(
    mapper: DeviceMapper, name: str, below: str, log_disk: str, *, sector_count: int, stack: Stack | None = None
) -> Iterator[str]:
    """Log what reaches a device through the node that this gives; fill in how it ended.

    Raise RuntimeError if flushes would not be logged or the log is full: then the recording is void.
    """
    with mapper.created(name, Target("log-writes", f"{below} {log_disk}", sector_count)) as node:
        disks.require_write_cache(node)
        yield node
        status = mapper.status(name)
        if stack:
            stack.status, stack.counts = status, disks.request_counts(stack.disk)
    if "logging_disabled" in status:
        raise RuntimeError(f"the log {name} on {log_disk} is full; record fewer transactions")


def _delay_params(disk: str, device: Device) -> str:
    return f"{disk} 0 {device.read_ms} {disk} 0 {device.write_ms} {disk} 0 {device.flush_ms}"
