"""What runs in a worker of a cluster: the machines of a campaign, held for as long as there is work for them.

Each public function is a task or a message of `rig.campaign.executors.cluster`. A task does what `LocalThreads` does,
with machines that this process holds under a key. The machines die with the process (`rig.sandbox`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

import rig
from rig.campaign.executors import parcels
from rig.campaign.executors.executor import LocalThreads
from rig.campaign.executors.parcels import LackError, Parcel
from rig.campaign.verification import Job
from rig.contract.errors import RecordingError, RigError, VmError
from rig.contract.findings import Finding
from rig.contract.scenario import Scenario
from rig.faults import LogError, LogFile
from rig.host.cache import require_cache
from rig.machines.guests import Machines
from rig.machines.pool import Pools
from rig.machines.template import require_qemu
from rig.planning.matrix import Profile
from rig.recordings.recoveries import Recoveries

# Machines that no task has used for so long may belong to a campaign that was killed.
_IDLE_S = 600
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Host:
    """What a worker says of its host before it gets work."""

    name: str
    cache: Path
    # Equal for processes that share a cache: a parcel travels to one of them.
    place: str
    # Both decide what is recorded and found.
    rig: str
    qemu: str


@dataclass(frozen=True)
class Material:
    """What a task needs on the worker: machines by their key, and the recording, unless the task makes it."""

    # Who asks.
    campaign: str
    machines_key: str
    logs: LogFile | None = None
    # The recording as a parcel; None if the worker can read the campaign's own file.
    parcel: Parcel | None = None


@dataclass(frozen=True)
class Yield:
    """The files that a task made, in the order in which they are written, what it said, and what ended it early."""

    files: dict[str, bytes]
    lines: Sequence[str]
    error: Exception | None


class _Station:
    """The machines of this process, and the campaigns that are over."""

    def __init__(self) -> None:
        self.over: dict[str, threading.Event] = defaultdict(threading.Event)
        self._lock = threading.Lock()
        self._pools = Pools()
        self._machines: dict[str, tuple[Machines, ExitStack]] = {}
        self._task_counts = Counter[str]()
        self._used_s: dict[str, float] = {}

    def keep(self, key: str, machines: Machines, stack: ExitStack) -> None:
        """Hold machines, and what they need, until they are released."""
        with self._lock:
            if key not in self._machines:
                self._used_s[key] = time.monotonic()
                self._machines[key] = machines, stack.pop_all()

    @contextmanager
    def threads(self, key: str, says: Callable[[str], None] = lambda _: None) -> Iterator[LocalThreads]:
        """Give machines for the length of a task; raise LackError if the process holds none."""
        with self._lock:
            if key not in self._machines:
                raise LackError(key)
            machines, _ = self._machines[key]
            self._task_counts[key] += 1
        try:
            yield LocalThreads(machines, pools=self._pools, says=says)
        finally:
            with self._lock:
                self._task_counts[key] -= 1
                self._used_s[key] = time.monotonic()

    def release(self, idle_s: float) -> None:
        """Give up the machines that no task has used for some time."""
        end_s = time.monotonic() - idle_s
        with self._lock:
            idle = [key for key in self._machines if not self._task_counts[key] and self._used_s[key] <= end_s]
            stacks = [self._machines.pop(key)[1] for key in idle]
        if stacks:
            self._pools.close()
        for stack in stacks:
            stack.close()


_station = _Station()


def examine() -> Host:
    """Say what this host has; raise RigError if it has no QEMU or no place for a cache."""
    qemu = require_qemu()
    folder = require_cache()
    folder.mkdir(parents=True, exist_ok=True)
    facts = folder.stat()
    # Containers of one host share its boot id; their folders may have the same name and be different ones.
    place = f"{_BOOT_ID.read_text().strip()} {facts.st_dev} {facts.st_ino}"
    return Host(socket.gethostname(), folder, place, f"{version('powercut-rig')} {_code_digest()}", qemu)


def open_machines(key: str, machines: Machines, received: Sequence[Parcel]) -> str:
    """Hold machines under a key, after some have answered; raise VmError if none does, LackError without a parcel.

    User-mode machines are only faster. If none works here, return why: states are checked under emulation then.
    """
    _station.release(_IDLE_S)
    trouble = ""
    with ExitStack() as stack:
        for parcel in received:
            stack.enter_context(parcels.hold(parcel))
        for source in (machines.recorder, machines.verifier, machines.checker):
            try:
                with source.clone():
                    pass
            except (RigError, TimeoutError, OSError) as error:
                trouble = str(error).partition("\n")[0]
                if source is not machines.user_mode:
                    raise VmError(f"no machine runs there: {trouble}") from None
                machines = replace(machines, user_mode=None)
        _station.keep(key, machines, stack)
    return trouble


def make_recording(material: Material, scenario: Scenario, folder: str, *, reproduce: bool) -> Yield:
    """Record a scenario; `folder` is where the campaign will keep it."""
    return _with_files(
        material,
        lambda threads, scratch: threads.record(scenario, scratch, reproduce=reproduce),
        folder,
        last="facts.json",
    )


def make_recoveries(material: Material, scenario: Scenario, profile: Profile, disk: tuple[int, int]) -> Yield:
    """Record recoveries; `disk` is the size of the disk in MiB and what it writes atomically in bytes."""

    def work(threads: LocalThreads, scratch: Path) -> None:
        with _logs(material) as file, file.open() as logs:
            threads.recover(scenario, profile, logs, Recoveries(scratch, *disk))

    return _with_files(material, work, "", last="index.json")


def check(material: Material, job: Job, *, is_emulated: bool) -> list[Finding]:
    """Check the states of a job: all of them, unless the campaign is over."""
    with _station.threads(material.machines_key) as threads, _logs(material) as file:
        over = _station.over[material.campaign]
        try:
            return list(threads.findings(replace(job, logs=file), over, is_emulated=is_emulated))
        except LogError as error:
            raise RecordingError(str(error)) from None


def leave(campaign: str) -> None:
    """Have the checks of a campaign end, and give up what no task uses. A message: it waits for nothing."""
    _station.over[campaign].set()
    threading.Thread(target=_station.release, args=(0,), daemon=True).start()


def _with_files(material: Material, work: Callable[[LocalThreads, Path], object], folder: str, last: str) -> Yield:
    """Do work that leaves files in a folder, and return these; an error names the campaign's folder."""
    lines: list[str] = []
    error: Exception | None = None
    with (
        _station.threads(material.machines_key, lines.append) as threads,
        tempfile.TemporaryDirectory(dir=require_cache(), prefix="station.") as scratch,
    ):
        try:
            work(threads, Path(scratch))
        except (RigError, LogError, TimeoutError) as raised:
            # A LogError does not survive pickling.
            kind = RecordingError if isinstance(raised, LogError) else type(raised)
            error = kind(str(raised).replace(scratch, folder))
        paths = sorted(Path(scratch).iterdir(), key=lambda path: (path.name == last, path.name))
        return Yield({path.name: path.read_bytes() for path in paths}, lines, error)


@contextmanager
def _logs(material: Material) -> Iterator[LogFile]:
    """Give the recording as a file of this host; raise LackError if it is gone."""
    assert material.logs
    if not material.parcel:
        yield material.logs
        return
    with parcels.hold(material.parcel) as path:
        yield replace(material.logs, path=path)


@cache
def _code_digest() -> str:
    """Return a digest of the rig's own code: two commits of one version are not the same."""
    hasher = hashlib.blake2b(digest_size=4)
    root = Path(rig.__file__).parent
    for folder, _, names in sorted(os.walk(root, followlinks=True)):
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                hasher.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return hasher.hexdigest()
