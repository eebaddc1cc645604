"""Cuts that really happen, in the recorder's guest: a disk that loses its power while the workload goes on.

The devices are those of `rig.guest.devices.stack`, with a layer that cuts. The layer is swapped while the workload
runs, and a swap waits for the requests that are under way; before it lets anybody go on, the mark `inject-N` says that
N rounds have been cut. What had completed before the mark is known: the layer counts it.

`livecut-drop`: from the cut on dm-flakey drops all writes and says they are done. What remains is all that had
completed, a cut without loss of the cache. The workload does some more transactions into the void.
`livecut-cache`: from the cut on every request fails, so that nothing more reaches the disk. When nobody has it open
any more null_blk loses its power and gets it back: what remains is what had been flushed. (With a file system directly
on it, taking it away would have synced it first.)

A recording is several rounds, each from an empty disk to one cut, at a place drawn by the seed: inside a commit, or
behind an acknowledgement. What remains is kept for the host, and then reopened and judged here.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from rig.contract.findings import Finding, FindingKind
from rig.contract.geometry import CHUNK_BYTES, DISK_MIB
from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.filesystems import filesystem_named
from rig.guest import recorder, recovery
from rig.guest.devices import disks, mounts
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.devices.stack import CUT, Stack, disks_in_ram, stacked
from rig.guest.programs import workload
from rig.guest.site import LOG, Site
from rig.guest.watch.forks import Fork, Send

_ROUNDS = (3, 6)
_TRANSACTIONS_PER_ROUND = 6
# Transactions into the void behind a cut.
_VOID = 2
_TRANSACTIONS_MAX = 10
_SECTORS = DISK_MIB * 2048
_ZEROS = bytes(CHUNK_BYTES)
_OFFSET = struct.Struct("<Q")


# Up for no second and down for a day, so that it does this from the moment of the swap on.
_AFTERWARDS = {
    Injection.LIVECUT_DROP: "0 86400 1 drop_writes",
    Injection.LIVECUT_CACHE: "0 86400 2 error_writes error_reads",
}


@dataclass(frozen=True)
class CutPoint:
    """Where a round is cut: in transaction `number`, or behind its acknowledgement."""

    number: int
    in_commit: bool
    # How far into the commit, as a share of the time that the last one took, or into the pause behind it.
    share: float


def cut_point(seed: int, number: int, transaction_count: int) -> CutPoint:
    """Return where a round is cut; the rounds of a recording are spread over its transactions."""
    choice = random.Random(f"livecut {seed} {number}")
    last = max(2, min(transaction_count - _VOID, _TRANSACTIONS_MAX))
    return CutPoint(choice.randint(2, last), number % 3 != 2, choice.random())


def round_count(transaction_count: int) -> int:
    """Return how many rounds the recording of a workload of this length has."""
    low, high = _ROUNDS
    return min(high, max(low, transaction_count // _TRANSACTIONS_PER_ROUND))


@dataclass(frozen=True)
class _Round:
    """One round at work."""

    number: int
    site: Site
    stack: Stack


def record(orders: Orders, keep: recorder.Keep) -> dict[str, Any]:
    """Record and cut; keep the logs and what was left of the disks, by turns; return facts."""
    root_reads = disks.request_counts("/dev/vda")["reads"]
    parts: list[bytes] = []
    rounds = [_round(orders, number, parts) for number in range(1, round_count(orders.transaction_count) + 1)]
    # Only now: the host takes its time over them, which would show in the clock of the rounds after them.
    for part in parts:
        keep(len(part), [part])
    return {
        "rounds": rounds, "live": [], "kernel": os.uname().release, "syncs": {},
        "settings": rounds[0]["settings"], "user_bytes": rounds[0]["user_bytes"],
        "root_reads": disks.request_counts("/dev/vda")["reads"] - root_reads,
    }  # fmt: skip


def _round(orders: Orders, number: int, parts: list[bytes]) -> dict[str, Any]:
    mapper, filesystem = DeviceMapper(), filesystem_named(orders.filesystem)
    with disks_in_ram(1):
        with stacked(mapper, orders.device, can_cut=True) as stack:
            filesystem.make(stack.top)
            mounts.mount(stack.top, filesystem.kernel_type, orders.mount_options)
            disks.settle(stack.top)
            site = Site(orders, mounts.MOUNT_POINT, stack.top)
            # It dies without closing anything: there is no disk to close it on.
            ending = Fork(partial(_sent, _Round(number, site, stack))).wait()
            mounts.unmount()
        if ending.exit_code:
            raise RuntimeError(f"the workload failed: {ending.why}")
        told = cast("dict[str, Any]", ending.messages[0])
        parts.append(recovery.content(stack.log_disk))
        if orders.injection is Injection.LIVECUT_CACHE:
            disks.cycle_power(stack.disk)
        parts.append(b"".join(_filled(stack.disk)))
        told["finding"] = _judged(stack.disk, site).message
    return told


def _sent(round_: _Round, send: Send) -> None:
    send(run(round_))


def _filled(disk: str) -> Iterator[bytes]:
    """Yield what is on a disk: the chunks that are not zeros, each behind its offset."""
    for number, chunk in enumerate(disks.chunks_of(disk)):
        if chunk != _ZEROS:
            yield _OFFSET.pack(number * CHUNK_BYTES) + chunk


def _judged(disk: str, site: Site) -> Finding:
    """Reopen what remained, as after any power cut, and say what is there."""
    try:
        mounts.mount(disk, site.filesystem.kernel_type, site.orders.mount_options)
    except OSError as error:
        return Finding(FindingKind.FILESYSTEM_DAMAGE, detail=str(error))
    try:
        return site.work.oracle().judge(site.open_database)
    finally:
        mounts.unmount()


class Cutter:
    """Cuts once, now or from another thread while a commit is under way."""

    def __init__(self, round_: _Round, mapper: DeviceMapper, mark: Callable[[str], None]) -> None:
        self._round = round_
        self._mapper = mapper
        self._mark = mark
        self._thread = threading.Thread(target=self.cut)
        self._wait_s = 0.0
        self.counts: dict[str, dict[str, int]] = {}

    def cut_in(self, wait_s: float) -> None:
        """Cut after a time, while the caller goes on."""
        self._wait_s = wait_s
        self._thread.start()

    def cut(self) -> None:
        """Cut, after the time that was set."""
        time.sleep(self._wait_s)
        after = Target("flakey", f"{self._round.stack.delayed} 0 {self._afterwards}", _SECTORS)
        self._mapper.swap(CUT, after, meanwhile=self._note)

    def join(self) -> None:
        """Wait until it is cut."""
        if self._thread.ident is not None:
            self._thread.join()

    def _note(self) -> None:
        self._mark(f"inject-{self._round.number}")
        stack = self._round.stack
        self.counts = {"disk": disks.request_counts(stack.disk), "layer": disks.request_counts(stack.below_log)}

    @property
    def _afterwards(self) -> str:
        return _AFTERWARDS[self._round.site.orders.injection]


def run(round_: _Round) -> dict[str, Any]:
    """Carry out the workload of one round, through its cut."""
    mapper = DeviceMapper()
    mark = workload.marker(mapper, LOG)
    site, orders, work = round_.site, round_.site.orders, round_.site.work
    where = cut_point(orders.seed, round_.number, orders.transaction_count)
    cutter = Cutter(round_, mapper, mark)
    database = site.open_database()
    database.create(work.tables, work.initial)
    read_back = database.settings()
    workload.make_durable(site.device)
    mark("setup")
    pause = random.Random(f"think {orders.seed} {round_.number}")
    last_s, number, words = 0.0, 0, ""
    try:
        for number in range(1, where.number + _VOID + 1):
            time.sleep(pause.uniform(0, 2 * orders.think_ms) / 1e3)
            mark(f"begin-{number}")
            begin_s = time.monotonic()
            if number == where.number and where.in_commit:
                cutter.cut_in(where.share * last_s)
            database.commit(work.transaction(number))
            last_s = time.monotonic() - begin_s
            mark(f"ack-{number}")
            if number == where.number and not where.in_commit:
                time.sleep(where.share * orders.think_ms / 1e3)
                cutter.cut()
    except Exception as error:  # noqa: BLE001 - whatever an engine raises without a disk, the round is over
        mark(f"fail-{number}")
        words = f"{type(error).__name__}: {error}"
    cutter.join()
    mark("end")
    return {
        "settings": read_back, "user_bytes": work.user_bytes(number), "counts": cutter.counts,
        "plan": vars(where), "words": words,
    }  # fmt: skip
