"""Cuts that really happen, in the recorder's guest: a disk loses its power while the workload runs.

`rig.guest.devices.stack` builds the devices, with a layer that cuts. The layer's table is swapped while the workload
runs. A swap waits for the requests in flight; before it lets later requests through, the mark `inject-N` says
that round N has been cut. The layer counts the requests that completed before the mark.

`livecut-drop`: from the cut on, dm-flakey drops all writes and reports success. Everything completed before the cut
remains, so this cut does not lose the cache. The workload runs a few more transactions, which are lost.

`livecut-cache`: from the cut on, every request fails, so that nothing more reaches the disk. Once the disk is closed,
null_blk is powered off and on again: only what had been flushed remains. (With a file system directly on null_blk,
powering off would first have synced it.)

`servercrash` is in `rig.guest.servercrash`.

A recording has several rounds. Each goes from an empty disk to one cut at a place drawn from the seed: inside a commit,
or after an acknowledgement. The guest sends what remains to the host, and also reopens and judges it.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rig.contract.findings import Finding, FindingKind, words_of
from rig.contract.geometry import CHUNK_BYTES
from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.filesystems import Attributed, Unjournaled, furnish
from rig.guest import filecontent, recorder, recovery
from rig.guest.devices import bootid, disks, mounts
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.devices.stack import CUT, Stack, build_stack, disks_in_ram
from rig.guest.judge import Judge
from rig.guest.programs import workload
from rig.guest.programs.marks import marker
from rig.guest.site import LOG, Site, filesystem_of
from rig.guest.watch.forks import Fork, Send

_ROUNDS_MIN = 3
# The first two only check what crash states are made of; the last has no states besides its rounds.
_ROUNDS_MAX = {Injection.LIVECUT_DROP: 6, Injection.LIVECUT_CACHE: 6, Injection.SERVERCRASH: 16}
# Transactions that the workload attempts after a cut.
_VOID = 2
# The last transaction that may be cut. After a server's crash the program goes on, so only the transaction tells one
# content from another.
_LAST = {Injection.LIVECUT_DROP: 10, Injection.LIVECUT_CACHE: 10, Injection.SERVERCRASH: 36}
# A workload with at least this many transactions has all rounds.
_TRANSACTIONS_OF_ALL = 36
_ZEROS = bytes(CHUNK_BYTES)
_OFFSET = struct.Struct("<Q")


# dm-flakey: up for 0 seconds, down for a day, so that this takes effect at the swap.
_AFTERWARDS = {
    Injection.LIVECUT_DROP: "0 86400 1 drop_writes",
    Injection.LIVECUT_CACHE: "0 86400 2 error_writes error_reads",
    Injection.SERVERCRASH: "0 86400 2 error_writes error_reads",
}


@dataclass(frozen=True)
class CutPoint:
    """Where a round is cut: in transaction `number`, or after its acknowledgement."""

    number: int
    in_commit: bool
    # How far into the commit, as a share of the time that the last one took, or how far into the pause after it.
    share: float


def cut_point(orders: Orders, number: int) -> CutPoint:
    """Return where a round is cut.

    The rounds of a recording share its transactions after the first: each round is cut in its own range of them.
    """
    choice = random.Random(f"livecut {orders.seed} {number}")
    last = max(2, min(orders.transaction_count - _VOID, _LAST[orders.injection]))
    count = round_count(orders.transaction_count, orders.injection)
    first, beyond = (2 + (last - 1) * part // count for part in (number - 1, number))
    return CutPoint(choice.randint(first, max(first, beyond - 1)), number % 3 != 2, choice.random())


def round_count(transaction_count: int, injection: Injection) -> int:
    """Return the number of rounds in the recording of a workload of this length."""
    most = _ROUNDS_MAX[injection]
    return min(most, max(_ROUNDS_MIN, most * transaction_count // _TRANSACTIONS_OF_ALL))


def _nothing() -> None:
    """Do nothing."""


# Carries out the round of this number: returns its facts, and appends its log and the rest of its disk to a list.
CarryOut = Callable[[Orders, int, list[bytes]], dict[str, Any]]


@dataclass(frozen=True)
class CutRound:
    """One round at work, with what is done just before and just after its cut."""

    number: int
    site: Site
    stack: Stack
    before: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing


def record(orders: Orders, keep: recorder.Keep, carried_out: CarryOut | None = None) -> dict[str, Any]:
    """Record and cut; for each round send its log and then what was left of its disk; return facts.

    `carried_out` carries out a round; by default this module does.
    """
    root_reads = disks.request_counts(disks.ROOT_DISK)["reads"]
    parts: list[bytes] = []
    carry_out = carried_out or _round
    count = round_count(orders.transaction_count, orders.injection)
    rounds = [carry_out(orders, number, parts) for number in range(1, count + 1)]
    # Sent only now: the time that the host takes to receive them would affect the clock of later rounds.
    for part in parts:
        keep(len(part), [part])
    return {
        "rounds": rounds, "live": [], "kernel": os.uname().release, "syncs": {},
        "settings": rounds[0]["settings"], "filesystem": rounds[0]["filesystem"], "user_bytes": rounds[0]["user_bytes"],
        "root_reads": disks.request_counts(disks.ROOT_DISK)["reads"] - root_reads,
    }  # fmt: skip


def _round(orders: Orders, number: int, parts: list[bytes]) -> dict[str, Any]:
    mapper, filesystem = DeviceMapper(), filesystem_of(orders)
    with disks_in_ram(1):
        with build_stack(mapper, orders.device, size_mib=filesystem.disk_mib_min, can_cut=True) as stack:
            filesystem.make(stack.top)
            made_as = filesystem.made_as(stack.top)
            mounts.mount(stack.top, filesystem.kernel_type, orders.mount_options)
            furnish(filesystem, mounts.MOUNT_POINT)
            disks.settle(stack.top)
            read_back = {"format": made_as, "mount": filesystem.mounted_with(stack.top)}
            if isinstance(filesystem, Attributed):
                read_back["attributes"] = filesystem.attributes_below(mounts.MOUNT_POINT)
            site = Site(orders, mounts.MOUNT_POINT, stack.top)
            # The fork ends without closing the database, whose disk is gone.
            ending = Fork(partial(run, CutRound(number, site, stack))).wait()
            mounts.unmount()
        ending.require(f"the workload whose disk lost power (round {number})")
        facts = together(ending.messages)
        parts.append(recovery.content(stack.log_disk))
        if orders.injection is Injection.LIVECUT_CACHE:
            disks.cycle_power(stack.disk)
        parts.append(b"".join(chunks(stack.disk)))
        facts["finding"] = asdict(judge_disk(stack.disk, site))
    return facts | {"filesystem": read_back}


def together(messages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the messages of a round that ran in a fork into its facts."""
    return {name: fact for message in messages for name, fact in message.items()}


def chunks(disk: str) -> Iterator[bytes]:
    """Yield the content of a disk: the chunks that are not all zeros, each preceded by its offset."""
    for number, chunk in enumerate(disks.chunks_of(disk)):
        if chunk != _ZEROS:
            yield _OFFSET.pack(number * CHUNK_BYTES) + chunk


def judge_disk(disk: str, site: Site) -> Finding:
    """Reopen what remained, as after any power cut, and return the finding."""
    if isinstance(site.filesystem, Unjournaled):
        site.filesystem.recover(disk)
    try:
        mounts.mount(disk, site.filesystem.kernel_type, site.orders.mount_options)
    except OSError as error:
        return Finding(FindingKind.FILESYSTEM_DAMAGE, detail=str(error))
    files = filecontent.digest(mounts.MOUNT_POINT)
    judge = Judge()
    judge.assign(site)
    with bootid.new_boot("after the cut"):
        finding = judge.unmount(replace(judge.judge(), files=files))
        judge.kill()
    return finding


class Cutter:
    """Cuts once: immediately, or from another thread during a commit."""

    def __init__(self, round_: CutRound, mapper: DeviceMapper, mark: Callable[[str], None], send: Send) -> None:
        self._send = send
        self._round = round_
        self._mapper = mapper
        self._mark = mark
        self._thread = threading.Thread(target=self.cut)
        self._wait_s = 0.0

    def cut_in(self, wait_s: float) -> None:
        """Cut after a time, while the caller continues."""
        self._wait_s = wait_s
        self._thread.start()

    def cut(self) -> None:
        """Cut, after the time that `cut_in` set."""
        time.sleep(self._wait_s)
        self._round.before()
        delayed = self._round.stack.delayed
        after = Target("flakey", f"{delayed} 0 {self._afterwards}", disks.sector_count(delayed))
        self._mapper.swap(CUT, after, meanwhile=self._note)
        self._round.after()

    def join(self) -> None:
        """Wait for a cut that `cut_in` started."""
        if self._thread.ident is not None:
            self._thread.join()

    def _note(self) -> None:
        self._mark(f"inject-{self._round.number}")
        stack = self._round.stack
        counts = {"disk": disks.request_counts(stack.disk), "layer": disks.request_counts(stack.below_log)}
        self._send({"counts": counts})

    @property
    def _afterwards(self) -> str:
        return _AFTERWARDS[self._round.site.orders.injection]


def run(round_: CutRound, send: Send) -> None:
    """Carry out the workload of one round, including its cut; send its facts as they come."""
    mapper = DeviceMapper()
    mark = marker(mapper, LOG)
    site, orders, work = round_.site, round_.site.orders, round_.site.work
    where = cut_point(orders, round_.number)
    cutter = Cutter(round_, mapper, mark, send)
    database = site.open_database()
    database.create(work.first_tables, work.initial)
    send({"settings": database.settings(), "plan": vars(where), "user_bytes": 0, "words": ""})
    workload.make_durable(site)
    mark("setup")
    pause = random.Random(f"think {orders.seed} {round_.number}")
    last_s, number, words = 0.0, 0, ""
    try:
        for number in range(1, where.number + _VOID + 1):
            time.sleep(pause.uniform(0, 2 * orders.think_ms) / 1e3)
            mark(f"begin-{number}")
            send({"begun": number})
            begin_s = time.monotonic()
            if number == where.number and where.in_commit:
                cutter.cut_in(where.share * last_s)
            database.commit(work.transaction(number))
            last_s = time.monotonic() - begin_s
            mark(f"ack-{number}")
            send({"begun": 0})
            if number == where.number and not where.in_commit:
                time.sleep(where.share * orders.think_ms / 1e3)
                cutter.cut()
    except Exception as error:  # noqa: BLE001 - an engine may raise anything without a disk; the round is over
        mark(f"fail-{number}")
        words = words_of(error)
    cutter.join()
    mark("end")
    send({"user_bytes": work.user_bytes(number), "words": words})
