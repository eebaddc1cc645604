"""Record one scenario: a write log that begins before the file system is made and ends after the last unmount.

`rig.guest.devices.stack` builds the devices below the file system. A second disk has a second stack.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict
from typing import Any, cast

from rig.contract.geometry import disk_digest
from rig.contract.injections import ERRORS, Injection
from rig.contract.orders import ADD_PREFIX, DROP_PREFIX, TELL_CALLS, Orders, Shim
from rig.contract.scenario import NEIGHBOUR, WRITEBACK, is_default
from rig.filesystems import Attributed, FileSystem, disks_mib, furnish, on_two_disks
from rig.guest import recovery
from rig.guest.devices import disks, mounts, neighbour, serving
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import Stack, build_stack, disks_in_ram
from rig.guest.programs import clock, killcut, kills, own, workload
from rig.guest.site import Site, filesystem_of
from rig.guest.watch import addedsyncs, calls, drops
from rig.guest.watch.forks import Fork, ProgramFork, kill_children
from rig.guest.watch.sample import sample

_EATMYDATA = "/usr/lib/x86_64-linux-gnu/libeatmydata.so"
# Sends a part of the recording to the host: its size in bytes, and the bytes.
Keep = Callable[[int, Iterable[bytes]], None]


def record(orders: Orders, keep: Keep) -> dict[str, Any]:
    """Record; send the log of each disk, then the block trace of each disk; return facts. Raise if a log is void."""
    on_two = orders.injection is Injection.TWODISK
    sizes_mib = disks_mib(filesystem_of(orders), on_two=on_two)
    with disks_in_ram(len(sizes_mib)):
        root_reads = disks.request_counts(disks.ROOT_DISK)["reads"]
        mapper = DeviceMapper()
        with ExitStack() as layers:
            stack, *others = [
                layers.enter_context(
                    build_stack(
                        mapper, orders.device, number=number, size_mib=size_mib, can_fail=orders.injection in ERRORS
                    )
                )
                for number, size_mib in enumerate(sizes_mib)
            ]
            second = others[0] if others else None
            facts = _run(orders, stack, second)
        # Reads from the host's disk void a recording, because the moment when they complete changes what follows.
        root_reads = disks.request_counts(disks.ROOT_DISK)["reads"] - root_reads
        facts |= {"root_reads": root_reads, "kernel": os.uname().release} | _send_log(keep, stack)
        if second:
            facts["second"] = _send_log(keep, second)
        for each in filter(None, (stack, second)):
            keep(len(each.requests), [bytes(each.requests)])
    # The sample comes last, so that it cannot influence the recording. The documented syncs are for plain workloads.
    is_plain = orders.shim == Shim.NONE and not orders.injection and is_default(orders.workload)
    # Where transactions overlap, nobody can tell whose call it is.
    facts["syncs"] = sample(orders).syncs if is_plain and orders.client_count == 1 else {}
    return facts


def _run(orders: Orders, stack: Stack, second: Stack | None) -> dict[str, Any]:
    filesystem = filesystem_of(orders)
    with _make(filesystem, stack, second) as (device, uniting):
        read_back = {"format": filesystem.made_as(device)}
        begin_ns = time.monotonic_ns()
        options = mounts.join_options(orders.mount_options, uniting)
        with mounts.mount_point(device, filesystem.kernel_type, options) as directory:
            furnish(filesystem, directory)
            # From here on everything that the mount wrote is durable, whatever is written to the same blocks later.
            for each in filter(None, (stack, second)):
                disks.settle(each.top)
            with serving.serve(filesystem, directory):
                read_back["mount"] = filesystem.mounted_with(device)
                site = Site(orders, directory, device, stack.log, second.top if second else "")
                is_beside = orders.neighbour == NEIGHBOUR
                noise = neighbour.beside(directory, orders.transaction_count) if is_beside else nullcontext()
                try:
                    with noise:
                        facts = carry_out(site)
                finally:
                    if site.is_own:
                        # A program that was killed holds on to its mounts until it has ended.
                        kill_children()
            if isinstance(filesystem, Attributed):
                read_back["attributes"] = filesystem.attributes_below(directory)
    return facts | {"virtual_ns": time.monotonic_ns() - begin_ns, "filesystem": read_back}


def _make(filesystem: FileSystem, stack: Stack, second: Stack | None) -> AbstractContextManager[tuple[str, str]]:
    """Make the file system; give the device to mount, and mount options to add to the orders' own."""
    if not second:
        filesystem.make(stack.top)
        return nullcontext((stack.top, ""))
    separate = on_two_disks(filesystem)
    first_mib, _ = disks_mib(filesystem, on_two=True)
    separate.make_on_two(stack.top, second.top, first_mib)
    # mkfs leaves a journal unflushed, and without it the file system cannot be mounted.
    disks.settle(second.top)
    return separate.unite(stack.top, second.top)


def carry_out(site: Site) -> dict[str, Any]:
    """Carry out the workload of a site in processes of its own; raise EngineFailed if the engine fails."""
    if site.orders.injection is Injection.KILL:
        return kills.run(site)
    if site.orders.injection is Injection.KILLCUT:
        return killcut.run(site)
    if site.orders.shim.startswith(TELL_CALLS):
        return calls.run(site)
    writes_back = site.orders.neighbour == WRITEBACK
    if site.orders.shim.startswith(ADD_PREFIX) or (writes_back and site.orders.shim == Shim.NONE):
        return addedsyncs.run(site)
    return drops.run(site) if _is_supervised(site) else _run_apart(site)


def _is_supervised(site: Site) -> bool:
    """Whether supervision leaves out syncs: one kind, or all if nothing can be preloaded or pages are written back."""
    shim = site.orders.shim
    is_ours = site.is_own or site.orders.neighbour == WRITEBACK
    return shim.startswith(DROP_PREFIX) or (shim == Shim.EATMYDATA and is_ours)


def _run_apart(site: Site) -> dict[str, Any]:
    """Run the workload as a fork, or as a separate program if it needs a preloaded library."""
    environment = clock.environment(site.orders.injection)
    if site.orders.shim == Shim.EATMYDATA:
        environment["LD_PRELOAD"] = _EATMYDATA
    if environment:
        fork: Fork = ProgramFork(workload.__name__, json.dumps(asdict(site)), environment, own.limits_of(site))
    else:
        fork = Fork(lambda send: send(workload.run_marked(site)), own.limits_of(site))
    ending = fork.wait()
    ending.require("the workload")
    (facts,) = ending.messages
    return cast("dict[str, Any]", facts)


def _send_log(keep: Keep, stack: Stack) -> dict[str, Any]:
    """Send a log; return the facts that the host checks it against."""
    digest = disk_digest(disks.chunks_of(stack.disk))
    # Only now is its length known: when the target was removed, it logged whatever was not flushed.
    log = recovery.content(stack.log_disk)
    keep(len(log), [log])
    return {"requests": dict(stack.counts), "device_digest": digest}
