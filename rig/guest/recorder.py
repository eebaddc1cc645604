"""Record one scenario: a write log that begins before mkfs and ends after the last unmount.

All devices are in guest RAM, so that nothing outside decides when a request completes. The stack, from below:
null_blk with a write cache, dm-delay with the device profile (left out for `none`), dm-log-writes, the file system.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

from rig.guest import clock, disks, mounts
from rig.guest.devicemapper import SECTOR_BYTES, DeviceMapper, Target

LOG_DISK = "/dev/ram0"
LOG_MIB = 640
_SECTORS = disks.DISK_MIB * 2048
# Milliseconds for a read, a write and a flush.
_DELAYS_MS = {"ssd": (0, 0, 1), "hdd": (4, 4, 8)}
_UUID = "12345678-1234-1234-1234-123456789abc"
_SHIMS = {"none": "", "eatmydata": "/usr/lib/x86_64-linux-gnu/libeatmydata.so"}
_ARCHIVE = "/run/log.zst"
_WORKLOAD_LIMIT_S = 3600


def record(scenario: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Record; return facts for the host and the path of the compressed log. Whatever voids the recording raises."""
    disks.load_module("brd", f"rd_nr=1 rd_size={LOG_MIB * 1024}")
    disk = disks.add_cached_disk()
    root_reads = disks.request_counts("/dev/vda")["reads"]
    mapper = DeviceMapper()
    below = disk
    if scenario["profile"] != "none":
        below = mapper.create("profile", Target("delay", _delay_params(disk, scenario["profile"]), _SECTORS))
    device = mapper.create("log", Target("log-writes", f"{below} {LOG_DISK}", _SECTORS))
    for node in {disk, below, device}:
        disks.require_write_cache(node)
    facts = _run(scenario, device)
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
    facts["device_sha256"] = _digest(disk)
    facts["log_bytes"] = _compress_log(int(status.split()[1]))
    disks.remove_cached_disk()
    disks.unload_module("brd")
    return facts, _ARCHIVE


def _run(scenario: dict[str, Any], device: str) -> dict[str, Any]:
    _make_filesystem(scenario["filesystem"], device)
    begin_ns = time.monotonic_ns()
    with mounts.mounted(device, scenario["filesystem"], scenario["mount_options"]) as directory:
        orders = scenario | {"directory": directory, "log_device": "log"}
        environment = dict(os.environ)
        if shim := _SHIMS[scenario["shim"]]:
            environment["LD_PRELOAD"] = shim
        environment |= clock.environment(scenario["injection"])
        process = subprocess.run(
            [sys.executable, "-m", "rig.guest.workload"], input=json.dumps(orders), env=environment,
            capture_output=True, text=True, timeout=_WORKLOAD_LIMIT_S, check=False,
        )  # fmt: skip
        if process.returncode:
            raise RuntimeError(f"the workload ended with {process.returncode}: {process.stderr.strip()[-2000:]}")
    facts: dict[str, Any] = json.loads(process.stdout)
    facts["virtual_ns"] = time.monotonic_ns() - begin_ns
    facts["syncs"] = {}
    return facts


def _make_filesystem(filesystem: str, device: str) -> None:
    # Everything is written now and nothing is random, so that the recording holds all there is to know.
    extended = f"hash_seed={_UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    commands = {
        "ext4": ["mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "256", "-U", _UUID, "-E", extended, "-J", "size=4"],
    }
    subprocess.run([*commands[filesystem], device], check=True, capture_output=True)


def _delay_params(disk: str, profile: str) -> str:
    read_ms, write_ms, flush_ms = _DELAYS_MS[profile]
    return f"{disk} 0 {read_ms} {disk} 0 {write_ms} {disk} 0 {flush_ms}"


def _digest(device: str) -> str:
    digest = hashlib.sha256()
    with open(device, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _compress_log(last_sector: int) -> int:
    """Compress the log up to a sector that surely lies behind its last entry; return the bytes taken."""
    size = (last_sector + 64) * SECTOR_BYTES
    with open(LOG_DISK, "rb") as log, open(_ARCHIVE, "wb") as archive:
        process = subprocess.Popen(["zstd", "-1", "-q", "-c"], stdin=subprocess.PIPE, stdout=archive)
        assert process.stdin
        left = size
        while left:
            chunk = log.read(min(left, 1 << 20))
            process.stdin.write(chunk)
            left -= len(chunk)
        process.stdin.close()
        if process.wait():
            raise RuntimeError(f"zstd ended with {process.returncode}")
    return size
