"""Cuts that really happen, in the recorder's guest: a disk that loses its power while the workload goes on.

The stack, from below: null_blk with a write cache, dm-delay with the device profile, a layer that cuts,
dm-log-writes, the file system. The layer is swapped while the workload runs, and a swap waits for the requests that
are under way; before it lets anybody go on, the mark `inject-N` says that N rounds have been cut. What had completed
before the mark is known: the layer counts it.

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
from enum import StrEnum
from functools import partial
from typing import Any, cast

from rig.engines import named
from rig.guest import recorder, recovery
from rig.guest.devices import disks, mounts
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.oracle import Finding, Oracle
from rig.guest.programs import workload
from rig.guest.watch.forks import Fork
from rig.workloads import ledger

_ROUNDS = (3, 6)
_TRANSACTIONS_PER_ROUND = 6
# Transactions into the void behind a cut.
_VOID = 2
_TRANSACTIONS_MAX = 10
_SECTORS = disks.DISK_MIB * 2048
_CUT, _LOG = "cut", "log"
_ZEROS = bytes(disks.CHUNK_BYTES)
_OFFSET = struct.Struct("<Q")


class Kind(StrEnum):
    """How the power goes; the words of `rig.contract.arms.FaultSpec.injection`."""

    DROP = "livecut-drop"
    CACHE = "livecut-cache"


# Up for no second and down for a day, so that it does this from the moment of the swap on.
_AFTERWARDS = {Kind.DROP: "0 86400 1 drop_writes", Kind.CACHE: "0 86400 2 error_writes error_reads"}


@dataclass(frozen=True)
class Plan:
    """Where a round is cut: in transaction `number`, or behind its acknowledgement."""

    number: int
    in_commit: bool
    # How far into the commit, as a share of the time that the last one took, or into the pause behind it.
    share: float


def plan(seed: int, number: int, transaction_count: int) -> Plan:
    """Return where a round is cut; the rounds of a recording are spread over its transactions."""
    choice = random.Random(f"livecut {seed} {number}")
    last = max(2, min(transaction_count - _VOID, _TRANSACTIONS_MAX))
    return Plan(choice.randint(2, last), number % 3 != 2, choice.random())


def round_count(transaction_count: int) -> int:
    """Return how many rounds the recording of a workload of this length has."""
    low, high = _ROUNDS
    return min(high, max(low, transaction_count // _TRANSACTIONS_PER_ROUND))


def record(scenario: dict[str, Any], keep: recorder.Keep) -> dict[str, Any]:
    """Record and cut; keep the logs and what was left of the disks, by turns; return facts."""
    root_reads = disks.request_counts("/dev/vda")["reads"]
    parts: list[bytes] = []
    rounds = [_round(scenario, number, parts) for number in range(1, round_count(scenario["transaction_count"]) + 1)]
    # Only now: the host takes its time over them, which would show in the clock of the rounds behind.
    for part in parts:
        keep(len(part), [part])
    return {
        "rounds": rounds, "live": [], "kernel": os.uname().release, "syncs": {},
        "settings": rounds[0]["settings"], "user_bytes": rounds[0]["user_bytes"],
        "root_reads": disks.request_counts("/dev/vda")["reads"] - root_reads,
    }  # fmt: skip


def _round(scenario: dict[str, Any], number: int, parts: list[bytes]) -> dict[str, Any]:
    disks.load_module("brd", f"rd_nr=1 rd_size={recorder.LOG_MIB * 1024}")
    disk = disks.add_cached_disk()
    mapper = DeviceMapper()
    below = disk
    if scenario["profile"] != "none":
        below = mapper.create("profile", Target("delay", recorder.delay_params(disk, scenario["profile"]), _SECTORS))
    layer = mapper.create(_CUT, Target("linear", f"{below} 0", _SECTORS))
    device = mapper.create(_LOG, Target("log-writes", f"{layer} {recorder.LOG_DISK}", _SECTORS))
    for node in {disk, below, layer, device}:
        disks.require_write_cache(node)
    recorder.make_filesystem(scenario["filesystem"], device, "")
    mounts.mount(device, scenario["filesystem"], scenario["mount_options"])
    orders = scenario | {"round": number, "directory": mounts.MOUNT_POINT, "below": below, "layer": layer, "disk": disk}
    # It dies without closing anything: there is no disk to close it on.
    ending = Fork(lambda send: send(run(orders))).wait()
    mounts.unmount()
    if ending.exit_code:
        raise RuntimeError(f"the workload failed: {ending.why}")
    status = mapper.status(_LOG)
    if "logging_disabled" in status:
        raise RuntimeError(f"the log of {recorder.LOG_MIB} MiB is full; record fewer transactions")
    for name in (_LOG, _CUT, *(["profile"] if below != disk else [])):
        mapper.remove(name)
    told = cast("dict[str, Any]", ending.messages[0])
    parts.append(recovery.content(recorder.LOG_DISK))
    if scenario["injection"] == Kind.CACHE:
        disks.cycle_power(disk)
    parts.append(b"".join(_filled(disk)))
    told["finding"] = vars(_judged(disk, scenario))
    disks.remove_cached_disk()
    disks.unload_module("brd")
    return told


def _filled(disk: str) -> Iterator[bytes]:
    """Yield what is on a disk: the chunks that are not zeros, each behind its offset."""
    for number, chunk in enumerate(disks.chunks_of(disk)):
        if chunk != _ZEROS:
            yield _OFFSET.pack(number * disks.CHUNK_BYTES) + chunk


def _judged(disk: str, scenario: dict[str, Any]) -> Finding:
    """Reopen what remained, as after any power cut, and say what is there."""
    models = ledger.models(scenario["seed"], scenario["transaction_count"])
    oracle = Oracle(ledger.TABLES, models, partial(ledger.transaction, scenario["seed"]))
    try:
        mounts.mount(disk, scenario["filesystem"], scenario["mount_options"])
    except OSError as error:
        return Finding("file-system-damage", detail=str(error))
    try:
        return oracle.judge(lambda: named(scenario["engine"]).open_database(mounts.MOUNT_POINT, scenario["settings"]))
    finally:
        mounts.unmount()


class Cutter:
    """Cuts once, now or from another thread while a commit is under way."""

    def __init__(self, orders: dict[str, Any], mapper: DeviceMapper, mark: Callable[[str], None]) -> None:
        self._orders = orders
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
        after = Target("flakey", f"{self._orders['below']} 0 {_AFTERWARDS[self._orders['injection']]}", _SECTORS)
        self._mapper.swap(_CUT, after, meanwhile=self._note)

    def join(self) -> None:
        """Wait until it is cut."""
        if self._thread.ident is not None:
            self._thread.join()

    def _note(self) -> None:
        self._mark(f"inject-{self._orders['round']}")
        self.counts = {name: disks.request_counts(self._orders[name]) for name in ("disk", "layer")}


def run(orders: dict[str, Any]) -> dict[str, Any]:
    """Carry out the workload of one round, through its cut."""
    mapper = DeviceMapper()
    mark = workload.marker(mapper, _LOG)
    seed = orders["seed"]
    where = plan(seed, orders["round"], orders["transaction_count"])
    cutter = Cutter(orders, mapper, mark)
    database = named(orders["engine"]).open_database(orders["directory"], orders["settings"])
    database.create(ledger.TABLES, ledger.initial(seed))
    read_back = database.settings()
    os.sync()
    mark("setup")
    pause = random.Random(f"think {seed} {orders['round']}")
    last_s, number, words = 0.0, 0, ""
    try:
        for number in range(1, where.number + _VOID + 1):
            time.sleep(pause.uniform(0, 2 * orders["think_ms"]) / 1e3)
            mark(f"begin-{number}")
            begin_s = time.monotonic()
            if number == where.number and where.in_commit:
                cutter.cut_in(where.share * last_s)
            database.commit(ledger.transaction(seed, number))
            last_s = time.monotonic() - begin_s
            mark(f"ack-{number}")
            if number == where.number and not where.in_commit:
                time.sleep(where.share * orders["think_ms"] / 1e3)
                cutter.cut()
    except Exception as error:  # noqa: BLE001 - whatever an engine raises without a disk, the round is over
        mark(f"fail-{number}")
        words = f"{type(error).__name__}: {error}"
    cutter.join()
    mark("end")
    user_bytes = sum(one.user_bytes for n in range(1, number + 1) for one in ledger.transaction(seed, n))
    return {
        "settings": read_back, "user_bytes": user_bytes, "counts": cutter.counts, "plan": vars(where), "words": words,
    }  # fmt: skip
