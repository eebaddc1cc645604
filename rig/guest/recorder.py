"""Record one scenario: a write log that begins before mkfs and ends after the last unmount.

All devices are in guest RAM, so that nothing outside decides when a request completes. The stack, from below:
null_blk with a write cache, dm-delay with the device profile (left out for `none`), dm-log-writes, for the error arm
a layer that can fail, the file system.
For a journal on a disk of its own there is a second such stack, see `rig.guest.devices.journaldisk`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from rig.guest.devices import disks, faultlayer, journaldisk, mounts
from rig.guest.devices.devicemapper import SECTOR_BYTES, DeviceMapper, Target
from rig.guest.programs import clock, drops, kills, workload
from rig.guest.programs.injections import Injection
from rig.guest.watch.forks import Fork
from rig.guest.watch.sample import sample

LOG_DISK = "/dev/ram0"
LOG_MIB = 640
_SECTORS = disks.DISK_MIB * 2048
# Milliseconds for a read, a write and a flush.
_DELAYS_MS = {"ssd": (0, 0, 1), "hdd": (4, 4, 8)}
_UUID = "12345678-1234-1234-1234-123456789abc"
_JOURNAL_UUID = "87654321-4321-4321-4321-cba987654321"
_SHIMS = {"none": "", "eatmydata": "/usr/lib/x86_64-linux-gnu/libeatmydata.so", "lastwriter": ""}
_WORKLOAD_LIMIT_S = 3600
# Hands a part of the recording to the host: how many bytes, and the bytes.
Keep = Callable[[int, Iterable[bytes]], None]


def record(scenario: dict[str, Any], keep: Keep) -> dict[str, Any]:
    """Record; keep the log, and behind it that of a second disk; return facts. Whatever voids the recording raises."""
    has_journal = journaldisk.is_wanted(scenario)
    disks.load_module("brd", f"rd_nr={1 + has_journal} rd_size={LOG_MIB * 1024}")
    disk = disks.add_cached_disk()
    root_reads = disks.request_counts("/dev/vda")["reads"]
    mapper = DeviceMapper()
    below = disk
    if scenario["profile"] != "none":
        below = mapper.create("profile", Target("delay", delay_params(disk, scenario["profile"]), _SECTORS))
    log = mapper.create("log", Target("log-writes", f"{below} {LOG_DISK}", _SECTORS))
    can_fail = scenario["injection"] in list(Injection)
    device = faultlayer.FaultLayer(mapper, log).create() if can_fail else log
    for node in {disk, below, log, device}:
        disks.require_write_cache(node)
    journal = None
    if has_journal:
        profile = scenario["profile"]
        journal = journaldisk.JournalDisk(mapper, lambda disk: "" if profile == "none" else delay_params(disk, profile))
    facts = _run(scenario | {"device": device, "device_below": log}, device, journal.node if journal else "")
    if can_fail:
        mapper.remove(faultlayer.NAME)
    status = mapper.status("log")
    if "logging_disabled" in status:
        raise RuntimeError(f"the log of {LOG_MIB} MiB is full; record fewer transactions")
    counts = disks.request_counts(disk)
    mapper.remove("log")
    if below != disk:
        mapper.remove("profile")
    # Read from the host's disk, and the moment of its completion would have changed what follows.
    root_reads = disks.request_counts("/dev/vda")["reads"] - root_reads
    facts |= {"log_status": status, "requests": counts, "root_reads": root_reads, "kernel": os.uname().release}
    facts["device_digest"] = disks.disk_digest(disks.chunks_of(disk))
    _keep_log(keep, LOG_DISK, status)
    if journal:
        status, counts = journal.remove()
        facts["journal"] = {"requests": counts, "device_digest": disks.disk_digest(disks.chunks_of(journal.disk))}
        _keep_log(keep, journaldisk.LOG_DISK, status)
    disks.remove_cached_disk()
    disks.unload_module("brd")
    # After all else, so that nothing of the recording knows of it.
    is_plain = scenario["shim"] == "none" and not scenario["injection"]
    facts["syncs"] = sample(scenario).syncs if is_plain else {}
    return facts


def _run(scenario: dict[str, Any], device: str, journal: str) -> dict[str, Any]:
    make_filesystem(scenario["filesystem"], device, journal)
    if journal:
        # mkfs leaves what it wrote there of its file system unflushed, and without it nothing can be mounted.
        journaldisk.settle(journal)
    begin_ns = time.monotonic_ns()
    options = mounts.with_journal(scenario["mount_options"], journal)
    with mounts.mounted(device, scenario["filesystem"], options) as directory:
        if journal:
            journaldisk.settle(device)
        orders = scenario | {"directory": directory, "log_device": "log"}
        if scenario["injection"] == "kill":
            facts = kills.run(orders)
        else:
            facts = drops.run(orders) if scenario["shim"].startswith(drops.PREFIX) else _run_apart(orders)
    facts["virtual_ns"] = time.monotonic_ns() - begin_ns
    return facts


def _run_apart(orders: dict[str, Any]) -> dict[str, Any]:
    """Run the workload as a fork, or as a program of its own if something has to be put under it."""
    environment = clock.environment(orders["injection"])
    if shim := _SHIMS[orders["shim"]]:
        environment["LD_PRELOAD"] = shim
    if not environment:
        ending = Fork(lambda send: send(workload.run_marked(orders))).wait()
        if ending.exit_code:
            raise RuntimeError(f"the workload failed: {ending.why}")
        (facts,) = ending.messages
        return cast("dict[str, Any]", facts)
    process = subprocess.run(
        [sys.executable, "-m", "rig.guest.programs.workload"], input=json.dumps(orders),
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=_WORKLOAD_LIMIT_S, check=False,
    )  # fmt: skip
    if process.returncode:
        raise RuntimeError(f"the workload ended with {process.returncode}: {process.stderr.strip()[-2000:]}")
    return cast("dict[str, Any]", json.loads(process.stdout))


def make_filesystem(filesystem: str, device: str, journal: str) -> None:
    """Make a file system; `journal` is a disk of its own for its journal, if it is not empty."""
    # Everything is written now and nothing is random, so that the recording holds all there is to know.
    extended = f"hash_seed={_UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    where, size = "size=4", []
    if journal:
        command = ["mke2fs", "-q", "-F", "-b", "4096", "-U", _JOURNAL_UUID, "-O", "journal_dev", journal]
        subprocess.run(command, check=True, capture_output=True)
        where, size = f"device={journal}", [f"{journaldisk.DATA_MIB}M"]
    commands = {
        "ext4": ["mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "256", "-U", _UUID, "-E", extended, "-J", where],
    }
    subprocess.run([*commands[filesystem], device, *size], check=True, capture_output=True)


def delay_params(disk: str, profile: str) -> str:
    """Return the parameters of a dm-delay target over a disk, for a profile that has any."""
    read_ms, write_ms, flush_ms = _DELAYS_MS[profile]
    return f"{disk} 0 {read_ms} {disk} 0 {write_ms} {disk} 0 {flush_ms}"


def _keep_log(keep: Keep, log_disk: str, status: str) -> None:
    """Keep a log up to a sector that surely lies behind its last entry."""
    size = (int(status.split()[1]) + 64) * SECTOR_BYTES
    keep(size, disks.chunks_of(log_disk, size))
