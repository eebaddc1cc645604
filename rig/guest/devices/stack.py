"""The devices below a recorded file system, built and removed in one place.

From the bottom up: null_blk with a write cache; dm-delay, if the device has delays; for live cuts a layer that cuts;
dm-log-writes; for error faults a layer that can fail; then the file system. Everything is in guest RAM, so that
nothing outside the guest affects when a request completes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from rig.contract.devices import Device
from rig.guest.devices import blocktrace, disks
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.devices.faultlayer import FaultLayer

LOG_MIB = 640
# The share of a log up to which a workload that is left alone still has room for its remaining writes.
_NEARLY_FULL = 0.8
CUT = "cut"
DELAY = "delay{}"
# By number of the disk.
LOGS = ("log", "log-b")


@dataclass
class Stack:
    """The nodes of one disk and of the layers above it. The last two fields are set when the stack is removed."""

    disk: str
    # Below the cutting layer and the log.
    delayed: str
    # Directly below the log: the cutting layer if there is one.
    below_log: str
    log: str
    # The node for the file system.
    top: str
    log_disk: str
    # The requests that the disk completed, by kind.
    counts: Mapping[str, int] = field(default_factory=dict)
    # When the log's requests were submitted and completed, see `rig.guest.devices.blocktrace`; empty for live cuts.
    requests: bytearray = field(default_factory=bytearray)


@contextmanager
def disks_in_ram(count: int) -> Iterator[None]:
    """Make room for `count` disks and their logs for the length of a block; free the memory afterwards."""
    disks.load_module("brd", f"rd_nr={count} rd_size={LOG_MIB * 1024}")
    try:
        yield
    finally:
        disks.remove_cached_disks()
        disks.unload_module("brd")


@contextmanager
def delayed_disk(mapper: DeviceMapper, device: Device, size_mib: int, number: int = 0) -> Iterator[tuple[str, str]]:
    """Give two nodes of disk `number` in guest RAM, without and with delays, for the length of a block."""
    disk = disks.add_cached_disk(number, size_mib)
    with mapper.device(DELAY.format(number), delaying(disk, device, size_mib * 2048)) as delayed:
        yield disk, delayed


@contextmanager
def build_stack(
    mapper: DeviceMapper,
    device: Device,
    *,
    size_mib: int,
    number: int = 0,
    can_cut: bool = False,
    can_fail: bool = False,
) -> Iterator[Stack]:
    """Build the devices of disk `number` for the length of a block; raise RuntimeError if its log has filled up."""
    sector_count, log_disk = size_mib * 2048, f"/dev/ram{number}"
    with ExitStack() as layers:
        disk, delayed = layers.enter_context(delayed_disk(mapper, device, size_mib, number))
        below_log = delayed
        if can_cut:
            below_log = layers.enter_context(mapper.device(CUT, Target("linear", f"{delayed} 0", sector_count)))
        stack = Stack(disk, delayed, below_log, "", "", log_disk)
        if not can_cut:
            stack.requests = layers.enter_context(blocktrace.trace(below_log))
        log = log_requests(mapper, LOGS[number], below_log, log_disk, sector_count=sector_count, stack=stack)
        stack.log = layers.enter_context(log)
        stack.top = layers.enter_context(FaultLayer(mapper, stack.log).device()) if can_fail else stack.log
        for node in {disk, delayed, below_log, stack.log, stack.top}:
            disks.require_write_cache(node)
        yield stack


@contextmanager
def log_requests(
    mapper: DeviceMapper, name: str, below: str, log_disk: str, *, sector_count: int, stack: Stack | None = None
) -> Iterator[str]:
    """Give a node that logs what reaches a device through it; set the counts of `stack` at the end.

    Raise RuntimeError if flushes would not be logged or the log is full, because the recording is then void.
    """
    with mapper.device(name, Target("log-writes", f"{below} {log_disk}", sector_count)) as node:
        disks.require_write_cache(node)
        yield node
        status = mapper.status(name)
        if stack:
            stack.counts = disks.request_counts(stack.disk)
    if "logging_disabled" in status:
        raise RuntimeError(f"the log {name} on {log_disk} is full; record fewer transactions")


def has_room(mapper: DeviceMapper) -> bool:
    """Return whether most of the first disk's log is still free."""
    last_sector = int(mapper.status(LOGS[0]).split()[1])
    return last_sector < _NEARLY_FULL * LOG_MIB * 2048


def delaying(disk: str, device: Device, sector_count: int) -> Target:
    """Return the target that delays; without delays it passes requests on, and shows each when it completes."""
    if not device.has_delays:
        return Target("linear", f"{disk} 0", sector_count)
    params = f"{disk} 0 {device.read_ms} {disk} 0 {device.write_ms} {disk} 0 {device.flush_ms}"
    return Target("delay", params, sector_count)
