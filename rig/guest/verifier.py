"""Check crash states: put each on a throw-away layer above a base image, mount, reopen, judge, throw the layer away.

The base is in guest RAM and only moves forward. A request names extents, each (offset on the device, offset on the
recording's disk, length), first those that move the base to the start of the state's epoch, then those of the state.
Extents are little-endian triples of 64 bits in base64, because JSON lists take long to parse under emulation.
A source offset of `LITERALS_FROM` or more is one in the request's own `literals`: bytes that no entry of the log holds.
`clock` is the time, in seconds since 1970, with which the machine comes back; the answer says what it read then.
`unreadable` names ranges (offset, length) of the device that give EIO: an error target stands over the layer there.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import mmap
import os
import queue
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rig.engines import named
from rig.guest import disks, mounts
from rig.guest.clock import set_for_fsck, set_wall_clock
from rig.guest.devicemapper import SECTOR_BYTES, DeviceMapper, Target
from rig.guest.oracle import Finding, Oracle
from rig.workloads import ledger

RECORDING_DISK = "/dev/vdb"
_BASE = "/dev/ram0"
_LAYER_COUNT = 4
_SECTORS = disks.DISK_MIB * 2048
_CHUNK_SECTORS = 8
_COPY_BYTES_MAX = 1 << 20
LITERALS_FROM = 1 << 62
_EXTENT = struct.Struct("<QQQ")
_FSCK_LIMIT_S = 60
# If no layer is free by then, the thread that renews them has died.
_LAYER_LIMIT_S = 20
# e2fsck: 0 is clean, 1 means that it would have repaired something which replaying the journal explains.
_FSCK_CLEAN = 0


class Verifier:
    """One recording under check, for the life of one virtual machine."""

    def __init__(self, scenario: Mapping[str, Any], layers: Layers) -> None:
        self._filesystem = scenario["filesystem"]
        self._mount_options = scenario["mount_options"]
        self._open = partial(named(scenario["engine"]).open_database, mounts.MOUNT_POINT, scenario["settings"])
        models = ledger.models(scenario["seed"], scenario["transaction_count"])
        self._oracle = Oracle(ledger.TABLES, models, partial(ledger.transaction, scenario["seed"]))
        self._recording = os.open(RECORDING_DISK, os.O_RDONLY)
        self._base = os.open(_BASE, os.O_RDWR | os.O_DIRECT)
        self._buffer = memoryview(mmap.mmap(-1, _COPY_BYTES_MAX))
        self._layers = layers

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Judge one crash state; return kind, recovered, detail and where the time went, in milliseconds.

        A request with `digest` true also gets the `sha256` of the layer as it is before it is mounted.
        """
        clock = _Clock()
        self._copy(request["advance"], self._base)
        clock.lap("advance")
        with self._layers.fresh() as device:
            clock.lap("layer")
            target = os.open(device, os.O_RDWR | os.O_DIRECT)
            try:
                literals = zlib.decompress(base64.b64decode(request["literals"])) if "literals" in request else b""
                self._copy(request["extents"], target, literals)
            finally:
                os.close(target)
            clock.lap("apply")
            sha256 = self._sha256(device) if request.get("digest") else None
            with self._layers.with_errors(device, request.get("unreadable", ())) as faulty:
                if "clock" in request:
                    set_wall_clock(request["clock"])
                finding, read_s = self._judged(faulty, clock, may_set_clock="clock" in request)
        clock.lap("discard")
        answer: dict[str, Any] = {"kind": finding.kind, "recovered": finding.recovered, "detail": finding.detail}
        answer["ms"] = clock.laps_ms
        if "clock" in request:
            answer["clock"] = read_s
        return answer | ({"sha256": sha256} if sha256 else {})

    def _judged(self, device: str, clock: _Clock, *, may_set_clock: bool) -> tuple[Finding, float]:
        """Return what reopening showed, and the time that the machine's clock read after it."""
        finding = self._reopened(device, clock)
        read_s = time.time()
        if may_set_clock and finding.kind != "prefix":
            set_for_fsck()
        if finding.kind != "prefix" and (damage := self._filesystem_damage(device)):
            finding = Finding("file-system-damage", detail=f"{damage}; seen as {finding.kind}: {finding.detail}")
        return finding, read_s

    def _reopened(self, device: str, clock: _Clock) -> Finding:
        try:
            mounts.mount(device, self._filesystem, self._mount_options)
        except OSError as error:
            return Finding("file-system-damage", detail=str(error))
        clock.lap("mount")
        try:
            finding = self._oracle.judge(self._open)
            errors = mounts.ext4_error_count(device) if self._filesystem == "ext4" else 0
            clock.lap("reopen")
        finally:
            mounts.unmount()
            clock.lap("unmount")
        if errors:
            return Finding(
                "file-system-damage", detail=f"ext4 counted {errors} errors; {finding.kind} {finding.detail}"
            )
        return finding

    def _sha256(self, device: str) -> str:
        """Digest a whole device past the page cache: what is on it, not what is remembered of it."""
        digest = hashlib.sha256()
        source = os.open(device, os.O_RDONLY | os.O_DIRECT)
        try:
            while size := os.readv(source, [self._buffer]):
                digest.update(self._buffer[:size])
        finally:
            os.close(source)
        return digest.hexdigest()

    def _filesystem_damage(self, device: str) -> str:
        """Return what the file system's own check says of an unmounted device; empty when it is clean."""
        process = subprocess.run(
            ["e2fsck", "-f", "-n", device], capture_output=True, text=True, timeout=_FSCK_LIMIT_S, check=False
        )
        if process.returncode == _FSCK_CLEAN:
            return ""
        return f"e2fsck {process.returncode}: {' '.join(process.stdout.split())[:400]}"

    def _copy(self, packed: str, target: int, literals: bytes = b"") -> None:
        for device_offset, source_offset, length in _EXTENT.iter_unpack(base64.b64decode(packed)):
            for done in range(0, length, _COPY_BYTES_MAX):
                size = min(_COPY_BYTES_MAX, length - done)
                part = self._buffer[:size]
                if source_offset >= LITERALS_FROM:
                    begin = source_offset - LITERALS_FROM + done
                    part[:] = literals[begin : begin + size]
                elif os.preadv(self._recording, [part], source_offset + done) != size:
                    raise OSError(f"the recording ends before byte {source_offset + done + size}")
                os.pwrite(target, part, device_offset + done)


class Layers:
    """Copy-on-write layers above the base, a few of them made ahead.

    Making and removing one is mostly waiting for RCU, so a thread does it while the next state is checked. A layer
    made early reads through to the base until something is written to it, so the base may still move.
    """

    def __init__(self) -> None:
        disks.load_module("brd", f"rd_nr={1 + _LAYER_COUNT} rd_size={disks.DISK_MIB * 1024}")
        self._mapper = DeviceMapper()
        self._fresh: queue.SimpleQueue[_Layer] = queue.SimpleQueue()
        self._used: queue.SimpleQueue[_Layer] = queue.SimpleQueue()
        for slot in range(1, 1 + _LAYER_COUNT):
            self._fresh.put(self._made(f"layer{slot}", f"/dev/ram{slot}"))
        threading.Thread(target=self._renew, daemon=True).start()

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """Give the node of an empty layer for the length of a block."""
        layer = self._fresh.get(timeout=_LAYER_LIMIT_S)
        try:
            yield layer.device
        finally:
            self._used.put(layer)

    @contextmanager
    def with_errors(self, device: str, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
        """Give a node that reads as `device`, but for EIO in these ranges (offset, length)."""
        if not ranges:
            yield device
            return
        targets, end = [], 0
        for offset, length in sorted((offset // SECTOR_BYTES, length // SECTOR_BYTES) for offset, length in ranges):
            if offset > end:
                targets.append(Target("linear", f"{device} {end}", offset - end, end))
            targets.append(Target("error", "", length, offset))
            end = offset + length
        if end < _SECTORS:
            targets.append(Target("linear", f"{device} {end}", _SECTORS - end, end))
        try:
            yield self._mapper.create("errors", *targets)
        finally:
            self._mapper.remove("errors")

    def _renew(self) -> None:
        while True:
            layer = self._used.get()
            self._mapper.remove(layer.name)
            self._fresh.put(self._made(layer.name, layer.store))

    def _made(self, name: str, store: str) -> _Layer:
        target = Target("snapshot", f"{_BASE} {store} N {_CHUNK_SECTORS}", _SECTORS)
        return _Layer(name, store, self._mapper.create(name, target))


@dataclass(frozen=True)
class _Layer:
    name: str
    store: str
    device: str


class _Clock:
    def __init__(self) -> None:
        self._last_ns = time.monotonic_ns()
        self.laps_ms: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        self.laps_ms[name] = round((now_ns - self._last_ns) / 1e6, 3)
        self._last_ns = now_ns


def serve(layers: Layers, requests: Iterator[dict[str, Any]], reply: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until the machine is taken away: first the scenario, then one crash state after the other."""
    verifier = Verifier(next(requests), layers)
    # What is here now stays for good, and looking through it again and again for garbage costs time for nothing.
    gc.collect()
    gc.freeze()
    reply({"ready": True})
    for request in requests:
        # An error here ends this machine: half a copy would leave a base on which every later verdict were wrong.
        reply(verifier.check(request) | {"state": request["state"]})
