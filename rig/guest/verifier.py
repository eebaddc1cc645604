"""Check crash states: put each on a throw-away layer above a base image, mount, reopen, judge, throw the layer away.

The base is in guest RAM and only moves forward. A request names extents: `advance` moves the base to the start of the
state's epoch, `extents` makes the state. Each extent is (offset on the device, offset on the recording's disk, length),
three little-endian 64-bit words in base64, because JSON lists take long to parse under emulation. A source offset of
`LITERALS_FROM` or more points into the request's own `literals`: bytes that no entry of the log holds. `clock` is the
time, in seconds since 1970, with which the machine comes back; the answer has the time that was read after the check.
`look` asks, instead of a verdict, where the files are or what they hold (`rig.guest.filemap`).
`unreadable` lists ranges (offset, length) of the device that give EIO: an error target covers the layer there.
`patience` says how many times as long as usual a database may take. With `recover` true, the recovery itself is
recorded, see `rig.guest.recovery`; if `later_count` is not 0, the recovered database works on for this many
transactions (`rig.guest.programs.laterlife`).

Once the engine has shown a prefix of the transactions on some file content (`rig.guest.filecontent`), that finding
answers for the other states with this content. A sample of those states is opened anyway and must show the same. Two
kinds of state are always opened: all states of an engine whose spec says that it depends on more than its files, and
damaged states (`open` in the request), because damage to the file system's blocks may show only when they are used. So
every finding other than a prefix comes from an opening of its own.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

from rig.contract.findings import SEEN_AS, Finding, FindingKind
from rig.contract.geometry import CHUNK_BYTES, LITERALS_FROM, sparse_digest
from rig.contract.messages import decode
from rig.contract.orders import Orders
from rig.engines import load
from rig.filesystems import Aliased, Mirrored, Unjournaled, disks_mib, kernel, on_two_disks
from rig.guest import filecontent, filemap, recorder, recovery, shell
from rig.guest.devices import bootid, disks, mounts
from rig.guest.devices.faultlayer import Ballast
from rig.guest.devices.layer import BASE, RECOVERY_LOGS, Layer
from rig.guest.judge import Judge
from rig.guest.programs.clock import set_for_fsck, set_wall_clock
from rig.guest.site import Site
from rig.guest.watch.forks import EngineFailed

_COPY_BYTES_MAX = 1 << 20
_EXTENT = struct.Struct("<QQQ")
# Of the states whose file content is known, one in this many is opened again.
_AGAIN_EVERY = 8


class Verifier:
    """One recording under check."""

    def __init__(self, orders: Orders, layer: Layer, judge: Judge) -> None:
        self._site = Site(orders, mounts.MOUNT_POINT)
        self._filesystem = self._site.filesystem
        disks.require_modules(self._filesystem.modules)
        layer.resize(self._filesystem.disk_mib_min)
        self._recorded_as = self._filesystem.kernel_type
        self._repairs = self._filesystem if isinstance(self._filesystem, Unjournaled) else None
        self._checked_as = self._filesystem.checked_as if isinstance(self._filesystem, Aliased) else self._recorded_as
        self._mends = isinstance(self._filesystem, Mirrored) and self._filesystem.knows_copies
        self._recording = os.open(disks.RECORDING_DISK, os.O_RDONLY)
        self._base = os.open(BASE, os.O_RDWR | os.O_DIRECT)
        self._buffer = memoryview(mmap.mmap(-1, _COPY_BYTES_MAX))
        # The chunks of the base that were written, by number; all others are zeros.
        self._written: set[int] = set()
        self._layer = layer
        self._judge = judge
        judge.assign(self._site)
        self._known = _Known() if load(orders.engine_module).spec.depends_on_files_alone else None
        # While a state on two disks is checked: the node of the second disk, and the options that mount both.
        self._second = self._uniting = ""

    def end(self) -> None:
        """Empty the base and drop the cached recording, for the next recording."""
        zeros = mmap.mmap(-1, CHUNK_BYTES)
        for number in self._written:
            os.pwrite(self._base, zeros, number * CHUNK_BYTES)
        os.close(self._base)
        disks.forget(self._recording)
        os.close(self._recording)

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Judge one crash state; return kind, recovered, detail and the time of each step in milliseconds.

        A request with `digest` true also gets the `sha256` of the layer before it is mounted.
        """
        clock = _Clock()
        self._judge.patience = request.get("patience", 1)
        device = self._apply(request, clock)
        sha256 = self._sha256(device) if request.get("digest") else None
        if request.get("recover"):
            return self._record(device, request["extents"], request["later_count"], clock)
        if look := request.get("look"):
            return self._look(device, look)
        with self._layer.with_errors(device, request.get("unreadable", ())) as faulty, self._parts(faulty) as data:
            if "clock" in request:
                set_wall_clock(request["clock"])
            finding, read_s = self._judge_reopened(
                data, clock, request.get("clock"), must_open=request.get("open", False)
            )
        clock.lap("discard")
        answer = replace(finding, ms=clock.laps_ms, clock_s=read_s if "clock" in request else None)
        return asdict(answer) | ({"sha256": sha256} if sha256 else {})

    def _apply(self, request: Mapping[str, Any], clock: _Clock | None = None) -> str:
        """Put a crash state on a fresh layer, and return its node."""
        clock = clock or _Clock()
        self._advance(request["advance"])
        clock.lap("advance")
        device = self._layer.fresh()
        clock.lap("layer")
        target = os.open(device, os.O_RDWR | os.O_DIRECT)
        try:
            literals = zlib.decompress(base64.b64decode(request["literals"])) if "literals" in request else b""
            self._copy(request["extents"], target, literals)
        finally:
            os.close(target)
        clock.lap("apply")
        return device

    def shell(
        self, request: Mapping[str, Any], requests: Iterator[dict[str, Any]], reply: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Mount a crash state and let the host's user look around in it; return the exit code of the shell."""
        with self._parts(self._apply(request)) as data:
            if self._repairs:
                self._repairs.recover(data)
            with mounts.mount_point(data, self._checked_as, self._options) as directory:
                return {"exit_code": shell.serve(directory, requests, reply)}

    def _look(self, device: str, look: str) -> dict[str, Any]:
        """Return where the files of a crash state are (`places`) or what they hold (`files`); None if it is damaged."""
        with self._parts(device) as data:
            if self._repairs:
                self._repairs.recover(data)
            try:
                with mounts.mount_point(data, self._checked_as, self._options) as directory:
                    if look == "places":
                        return {look: [asdict(places) for places in filemap.places(directory)]}
                    return {look: filemap.archive(directory)}
            except OSError:
                return {look: None}

    def _record(self, device: str, extents: str, later_count: int, clock: _Clock) -> dict[str, Any]:
        """Judge a crash state and record its recovery; return the finding, the recording, the new digest and files.

        If `later_count` is not 0, the recovered database works on for this many transactions.
        """
        life = f"life {2 + len(self._site.orders.lives)}"
        # What the calls of the later life were, if the orders ask for them.
        calls: list[dict[str, Any]] = []
        with (
            recovery.record(self._layer.mapper, device, RECOVERY_LOGS, self._layer.sector_count) as made,
            bootid.new_boot(life),
        ):
            site = replace(self._site, device=made.node, later_count=later_count)
            judged = partial(self._live, site, calls) if later_count else self._judge_and_sync
            finding = self._reopen(made.node, self._recorded_as, clock, lambda _: judged())
        places: list[tuple[int, int]] = []
        spans = [(offset, length) for offset, _, length in _extents(extents)]
        numbers = self._chunks(*spans, *recovery.written_ranges(made.log))
        digest = sparse_digest(disks.chunks_at(device, numbers))
        if finding.kind is not FindingKind.FILESYSTEM_DAMAGE and self._filesystem.maps_files:
            with mounts.mount_point(device, self._recorded_as, self._site.orders.mount_options) as directory:
                places = recovery.places(directory)
        answer = asdict(replace(finding, ms=clock.laps_ms))
        recording = {"log": recovery.pack(made.log), "trace": recovery.pack(made.trace)}
        return answer | recording | {"digest": digest, "places": places, "calls": calls}

    def _live(self, site: Site, calls: list[dict[str, Any]]) -> Finding:
        """Let the database recover and work on; return what it showed, or how it failed. Add its calls if it tells."""
        # Process 1 reaps all its children when a fork ends.
        self._judge.kill()
        try:
            facts = recorder.carry_out(site)
            calls += facts.get("calls", ())
            return decode(Finding, facts["finding"])
        except EngineFailed as error:
            return Finding(error.kind, detail=str(error))

    def _judge_and_sync(self) -> Finding:
        """Judge the database; then sync its directory, as the engine or any other program may do next.

        The sync makes the removal of a journal durable, but not data that was restored from it and never synced.
        """
        finding = self._judge.judge()
        with suppress(OSError):  # the file system may have failed
            directory = os.open(self._site.engine_directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return finding

    @contextmanager
    def _parts(self, device: str) -> Iterator[str]:
        """Give the node to mount. If there are two disks, each is a part of the device."""
        if not self._site.has_two_disks:
            yield device
            return
        first_mib, _ = disks_mib(self._filesystem, on_two=True)
        with (
            self._layer.parts(device, first_mib * 2048) as (first, self._second),
            on_two_disks(self._filesystem).unite(first, self._second) as (united, self._uniting),
        ):
            yield united

    def _judge_reopened(
        self, device: str, clock: _Clock, time_s: int | None, *, must_open: bool
    ) -> tuple[Finding, float]:
        """Return the finding of the reopening, and the time that the machine's clock showed after it."""

        def judge_files(files: str) -> Finding:
            if must_open or not files or self._known is None:
                return self._judge.judge()
            return self._known.judge((files, time_s), lambda: self._judge.judge(leaves=True), self._judge.judge)

        finding = self._reopen(device, self._checked_as, clock, judge_files)
        read_s = time.time()
        if self._known and finding.opened and finding.kind is not FindingKind.PREFIX:
            self._known.forget((finding.files, time_s))
        if time_s is not None and finding.kind is not FindingKind.PREFIX:
            set_for_fsck()
        if finding.kind is not FindingKind.PREFIX and (damage := self._damage(device)):
            words = f"{damage}; {SEEN_AS} {finding.kind}: {finding.detail}"
            finding = replace(finding, kind=FindingKind.FILESYSTEM_DAMAGE, recovered=None, detail=words)
        return finding, read_s

    def _reopen(self, device: str, kernel_type: str, clock: _Clock, judged: Callable[[str], Finding]) -> Finding:
        repaired = self._repairs.recover(device) if self._repairs else ""
        clock.lap("repair")
        kernel.forget_messages()
        try:
            mounts.mount(device, kernel_type, self._options)
        except OSError as error:
            return Finding(FindingKind.FILESYSTEM_DAMAGE, detail=str(error), repaired=bool(repaired))
        clock.lap("mount")
        self._give_space_back()
        files = filecontent.digest(mounts.MOUNT_POINT)
        clock.lap("files")
        finding = replace(judged(files), files=files, repaired=bool(repaired))
        error_count = self._filesystem.error_count(device)
        clock.lap("reopen")
        finding = self._judge.unmount(finding)
        clock.lap("unmount")
        if error_count and self._mends and finding.kind is FindingKind.PREFIX:
            return replace(finding, repaired=True)
        if error_count:
            words = f"{self._filesystem.word} counted {error_count} errors; {finding.kind} {finding.detail}"
            return replace(finding, kind=FindingKind.FILESYSTEM_DAMAGE, recovered=None, detail=words)
        return finding

    @staticmethod
    def _give_space_back() -> None:
        """Free space on a file system that was full at the cut: an open that fails there proves nothing."""
        ballast = Ballast(mounts.MOUNT_POINT)
        if ballast.is_there:
            ballast.remove()
            # Freed blocks may be reallocated only after the journal has committed the transaction that freed them.
            os.sync()

    def _sha256(self, device: str) -> str:
        """Digest a whole device with O_DIRECT: what the disk holds, not what the page cache holds."""
        digest = hashlib.sha256()
        for chunk in disks.chunks_of(device):
            digest.update(chunk)
        return digest.hexdigest()

    @property
    def _options(self) -> str:
        return mounts.join_options(self._site.orders.mount_options, self._uniting)

    def _damage(self, device: str) -> str:
        """Return what the file system's own check says about an unmounted device; empty if it is clean."""
        if self._second:
            return on_two_disks(self._filesystem).damage_on_two(device, self._second)
        return self._filesystem.damage(device)

    def _advance(self, packed: str) -> None:
        self._copy(packed, self._base)
        self._written = set(self._chunks(*((offset, length) for offset, _, length in _extents(packed))))

    def _chunks(self, *spans: tuple[int, int]) -> list[int]:
        """Return the numbers of the chunks of the base that were written, and of the chunks in these spans."""
        numbers = set(self._written)
        for offset, length in spans:
            numbers.update(range(offset // CHUNK_BYTES, -(-(offset + length) // CHUNK_BYTES)))
        return sorted(numbers)

    def _copy(self, packed: str, target: int, literals: bytes = b"") -> None:
        for device_offset, source_offset, length in _extents(packed):
            for done in range(0, length, _COPY_BYTES_MAX):
                size = min(_COPY_BYTES_MAX, length - done)
                part = self._buffer[:size]
                if source_offset >= LITERALS_FROM:
                    begin = source_offset - LITERALS_FROM + done
                    part[:] = literals[begin : begin + size]
                elif os.preadv(self._recording, [part], source_offset + done) != size:
                    raise OSError(f"the recording ends before byte {source_offset + done + size}")
                os.pwrite(target, part, device_offset + done)


def _extents(packed: str) -> Iterator[tuple[int, int, int]]:
    """Yield extents: the offset on the device, the offset of the source, and the length."""
    return cast("Iterator[tuple[int, int, int]]", _EXTENT.iter_unpack(base64.b64decode(packed)))


class _Known:
    """The prefixes that file contents showed, by content and clock."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, int | None], Finding] = {}
        self._hit_count = 0

    def forget(self, key: tuple[str, int | None]) -> None:
        """Forget a content, so that every state with it is opened."""
        self._findings.pop(key, None)

    def judge(
        self, key: tuple[str, int | None], judge: Callable[[], Finding], judge_again: Callable[[], Finding]
    ) -> Finding:
        """Return what a content showed before; judge it the first time, and again in a sample of the later times."""
        before = self._findings.get(key)
        if before is None:
            finding = judge()
            if finding.kind is FindingKind.PREFIX:
                self._findings[key] = finding
            return finding
        self._hit_count += 1
        if self._hit_count % _AGAIN_EVERY:
            return replace(before, opened=False)
        again = judge_again()
        if (before.kind, before.recovered, before.of_clients) == (again.kind, again.recovered, again.of_clients):
            return again
        words = [f"{finding.kind} {finding.detail or finding.recovered}" for finding in (before, again)]
        return replace(
            again, kind=FindingKind.UNSTABLE, recovered=None, detail=f"the same files showed {' and then '.join(words)}"
        )


class _Clock:
    def __init__(self) -> None:
        self._last_ns = time.monotonic_ns()
        self.laps_ms: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        self.laps_ms[name] = round((now_ns - self._last_ns) / 1e6, 3)
        self._last_ns = now_ns


def serve(
    layer: Layer, judge: Judge, requests: Iterator[dict[str, Any]], reply: Callable[[dict[str, Any]], None]
) -> None:
    """Answer requests until the machine is killed: a scenario, its crash states one by one, then the next scenario."""
    verifier: Verifier | None = None
    for request in requests:
        # An error here must end this machine: half a copy would leave a base that makes every later verdict wrong.
        if verifier and request.get("look") == "shell":
            reply(verifier.shell(request, requests, reply))
            continue
        if verifier and "state" in request:
            reply(verifier.check(request) | {"state": request["state"]})
            continue
        if verifier:
            verifier.end()
        verifier = _begin(decode(Orders, request), layer, judge)
        reply({"ready": True})


def _begin(orders: Orders, layer: Layer, judge: Judge) -> Verifier:
    gc.unfreeze()
    verifier = Verifier(orders, layer, judge)
    # Everything allocated so far lives as long as the verifier, so spare the garbage collector from scanning it again.
    gc.collect()
    gc.freeze()
    return verifier
