"""Machines of several hosts: an executor whose tasks are carried out by the workers of a Dask cluster.

Dask starts on any kind of cluster, knows the workers, and carries tasks and results. The executor gives a task to
each thread of each worker. A worker gets none before it has said that it has this version of the rig and of QEMU, and
machines have answered there. Workers may come and go at any time.

A task whose worker is gone or silent (`rig.campaign.executors.roster`) is begun again elsewhere. Only the answer to the
latest attempt is read, so a late answer counts for nothing. A task changes nothing outside its worker, so nothing is
done twice. Machines and recordings travel as parcels (`rig.campaign.executors.parcels`), unless the worker has the same
cache as the campaign and reads the same files.
"""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rig.campaign.executors import parcels, station
from rig.campaign.executors.parcels import LackError, Parcel
from rig.campaign.executors.roster import LOOK_S, LostError, Roster, Worker
from rig.campaign.executors.station import Host, Material, Yield
from rig.campaign.verification import Job
from rig.contract.errors import HostError, RigError, UsageError, VmError
from rig.contract.findings import Finding
from rig.contract.scenario import Scenario
from rig.faults import LogFile, Logs
from rig.host.cache import require_cache
from rig.host.files import atomic_write
from rig.machines.guests import Machines, Source
from rig.planning.matrix import Profile
from rig.recordings import archive
from rig.recordings.archive import Recording
from rig.recordings.recoveries import Recoveries

if TYPE_CHECKING:
    from distributed import Client

_T = TypeVar("_T")
# A task that loses five workers is probably why they die.
_TRIES = 5
_LEAVE_S = _CONNECT_S = 10
_TRANSFER_S = 60
# Calls that wait for workers that come later.
ROOM = 16


@dataclass
class _Arrivals:
    """A host, or several that share a cache: the digests of the parcels that have arrived there."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    digests: set[str] = field(default_factory=set)


class Cluster:
    """The workers of a Dask cluster, which stays open in the end."""

    # Three seconds of one machine: short enough to lose, long enough that beginning it costs little.
    part_max = 256

    def __init__(
        self, source: Source, client: Client, says: Callable[[str], None] = lambda _: None, room: int = 0
    ) -> None:
        """Begin; `room` is for how many more threads of workers calls may wait."""
        self.stopped = threading.Event()
        self._source = source
        # As if untyped: to Dask's types any client may be closed.
        self._client: Any = client
        self._says = says
        self._room = room
        self._campaign = uuid.uuid4().hex
        self._here = station.examine()
        self._first: Machines | None = None
        self._roster = Roster(client, self._refusal_of, self.stopped, says)
        self._arrivals_at: dict[str, _Arrivals] = {}
        self._parcels: dict[Path, Parcel] = {}

    @property
    def machine_count(self) -> int:
        """Return how many machines run at a time now."""
        return sum(worker.thread_count for worker in self._roster.able) or 1

    @property
    def thread_count(self) -> int:
        """Return how many calls are of use, with some for workers that come later.

        There are two for each machine: one reads what its machine found while the machine works for the other.
        """
        return 2 * self.machine_count + self._room

    def prepare(self, scenarios: Sequence[Scenario]) -> None:
        """Make the templates that the cache lacks, and wait for workers; raise HostError if none can be used."""
        for scenario in scenarios:
            machines = self._source.of(scenario)
            self._first = self._first or machines
        if scenarios:
            self._roster.begin()

    def record(self, scenario: Scenario, folder: Path, *, reproduce: bool) -> Recording:
        """Record on a worker, and keep the recording in the folder."""
        task = partial(station.make_recording, scenario=scenario, folder=str(folder), reproduce=reproduce)
        self._keep(self._do(self._source.of(scenario), None, task), folder)
        recording = archive.load(folder)
        assert recording, f"the files that a worker made of {scenario.id} are no recording"
        return recording

    def recover(self, scenario: Scenario, profile: Profile, logs: Logs, kept: Recoveries) -> None:
        """Recover on a worker, and keep the recordings."""
        disk = (kept.disk_mib, kept.unit_bytes)
        task = partial(station.make_recoveries, scenario=scenario, profile=profile, disk=disk)
        self._keep(self._do(self._source.of(scenario), logs.file, task), kept.folder)

    def findings(self, job: Job, enough: threading.Event, *, is_emulated: bool) -> Generator[Finding, None, None]:
        """Check states on a worker; give the findings once all of them are there."""
        task = partial(station.check, job=job, is_emulated=is_emulated)
        yield from self._do(self._source.of(job.scenario), job.logs, task, enough) or ()

    def stop(self) -> None:
        """Have all tasks end, without waiting for them."""
        self.stopped.set()
        self._leave()

    def close(self) -> None:
        """Have the workers give up their machines."""
        self._roster.end()
        self._leave().wait(_LEAVE_S)

    def _do(
        self,
        machines: Machines,
        logs: LogFile | None,
        task: Callable[[Material], _T],
        enough: threading.Event | None = None,
    ) -> _T | None:
        """Return what a task returns on some worker, or None once there is `enough`; raise the task's error."""
        enough = enough or threading.Event()
        lost = ""
        for _ in range(_TRIES):
            with self._roster.free(enough) as worker:
                if not worker:
                    return None
                try:
                    return self._do_at(worker, machines, logs, task, enough)
                except LostError as error:
                    lost = f"worker {worker.address} {error}"
            if self.stopped.is_set():
                raise VmError("the campaign is being stopped")
            if not enough.is_set():
                self._says(f"{lost}; its task is begun again")
        raise VmError(f"a task lost {_TRIES} workers; the last: {lost}")

    def _do_at(
        self,
        worker: Worker,
        machines: Machines,
        logs: LogFile | None,
        task: Callable[[Material], _T],
        enough: threading.Event,
    ) -> _T:
        """Send a worker what it lacks, and return what a task returns there."""
        while True:
            try:
                self._furnish(worker, machines)
                parcel = self._deliver(worker, logs.path) if logs else None
                return self._call(worker, task, Material(self._campaign, _key(machines), logs, parcel), enough=enough)
            except LackError:  # it has removed something since
                worker.machines_keys.clear()
                self._arrivals(worker).digests.clear()

    def _furnish(self, worker: Worker, machines: Machines) -> None:
        """Have a worker hold machines, and send what it lacks for that."""
        key = _key(machines)
        if key in worker.machines_keys:
            return
        assert worker.host
        sent = {folder: self._deliver(worker, folder) for folder in _folders(machines)}
        received = {folder: parcel for folder, parcel in sent.items() if parcel}
        theirs = {folder: parcel.within(worker.host.cache) for folder, parcel in received.items()}
        words = (key, _relocate(machines, theirs), list(received.values()))
        if trouble := self._call(worker, station.open_machines, *words):
            self._says(f"worker {worker.address} checks crash states under emulation: {trouble}")
        worker.machines_keys.add(key)

    def _deliver(self, worker: Worker, path: Path) -> Parcel | None:
        """Send a folder or file to a worker's host if that lacks it; return its parcel, None if it reads the same."""
        assert worker.host
        if worker.host.place == self._here.place:
            return None
        arrivals = self._arrivals(worker)
        with arrivals.lock:
            parcel = self._parcels.get(path) or self._parcels.setdefault(path, parcels.parcel_of(path))
            if parcel.digest not in arrivals.digests and not self._call(worker, parcels.has, parcel):
                sender = uuid.uuid4().hex
                for parts in parcels.messages(path):
                    self._call(worker, parcels.receive, parcel, sender, parts)
                self._call(worker, parcels.finish, parcel, sender)
            arrivals.digests.add(parcel.digest)
            return parcel

    def _arrivals(self, worker: Worker) -> _Arrivals:
        assert worker.host
        return self._arrivals_at.setdefault(worker.host.place, _Arrivals())

    def _call(self, worker: Worker, task: Callable[..., _T], *words: Any, enough: threading.Event | None = None) -> _T:
        """Return what a task returns on one worker; raise the task's error, or LostError."""
        from distributed import CancelledError, KilledWorker, wait

        # Dask takes two tasks of one key for the same task.
        key = f"rig-{uuid.uuid4().hex}"
        future = self._client.submit(task, *words, key=key, workers=[worker.address], allow_other_workers=False)
        try:
            while True:
                with suppress(TimeoutError):
                    wait(future, timeout=LOOK_S)
                if future.status == "error":
                    future.result()
                if future.status == "finished":
                    with suppress(TimeoutError):
                        answer: _T = future.result(timeout=_TRANSFER_S)
                        return answer
                self._roster.require(worker, enough or threading.Event())
        except (CancelledError, KilledWorker):
            raise LostError("is gone") from None
        finally:
            future.release()

    def _refusal_of(self, worker: Worker) -> str:
        """Return why a worker gets no work; empty once machines have answered there. Raise LostError."""
        assert self._first
        try:
            worker.host = self._call(worker, station.examine)
            if refusal := _difference(self._here, worker.host):
                return refusal
            self._furnish(worker, self._first)
        # Its rig may be another version, or not be there.
        except (RigError, LackError, OSError, ImportError, AttributeError, RuntimeError) as error:
            return str(error).partition("\n")[0] or repr(error)
        return ""

    def _keep(self, made: Yield | None, folder: Path) -> None:
        """Keep what a worker made; raise the error that ended it early."""
        assert made
        for line in made.lines:
            self._says(line)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.files.items():
            atomic_write(folder / name, content)
        if made.error:
            raise made.error

    def _leave(self) -> threading.Event:
        """Tell the workers that this campaign is over; return what is set once they know."""
        known = threading.Event()
        addresses = [worker.address for worker in self._roster.able]

        async def tell() -> None:
            with suppress(OSError):
                await self._client.run(station.leave, self._campaign, workers=addresses, on_error="ignore")
            known.set()

        self._client.loop.add_callback(tell)
        return known


@contextmanager
def connection(worker_count: int, address: str) -> Iterator[Client]:
    """Connect to a Dask cluster for the length of a block: to a scheduler, or to a new one with workers on this host.

    Raise UsageError if no scheduler answers, HostError if Dask is not installed.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise HostError("Dask is not installed: pip install 'powercut-rig[dask]'") from None
    with ExitStack() as stack:
        if address:
            try:
                # A client that does not connect would leave a thread behind.
                socket.create_connection(get_address_host_port(address), _CONNECT_S).close()
                client = Client(address, timeout=_CONNECT_S)
            except (OSError, ValueError) as error:
                raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None
        else:
            # Dask would leave a folder in /tmp: workers and scheduler.
            scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=require_cache(), prefix="workers."))
            stack.enter_context(dask.config.set({"temporary-directory": scratch}))
            # Ctrl-C must reach only us. What Dask starts inherits this.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                local: Any = LocalCluster(
                    n_workers=worker_count,
                    threads_per_worker=1,
                    # The memory of guests is limited already (`rig.sandbox`).
                    memory_limit=0,
                    dashboard_address="127.0.0.1:0",
                )
            finally:
                signal.signal(signal.SIGINT, handler)
            client = Client(stack.enter_context(local))
        yield stack.enter_context(client)


def _difference(here: Host, there: Host) -> str:
    """Return in which version two hosts differ; empty if in none."""
    for what, ours, theirs in (("the rig", here.rig, there.rig), ("QEMU", here.qemu, there.qemu)):
        if ours != theirs:
            return f"{there.name} has {what} {theirs}, and the campaign {ours}; install the same"
    return ""


def _key(machines: Machines) -> str:
    """Return a key for machines, equal for equal contents."""
    return f"{machines.recorder.identity} {machines.verifier.identity} {machines.checker.identity}"


def _folders(machines: Machines) -> list[Path]:
    """Return all folders that machines are started from."""
    templates = (machines.recorder, machines.verifier)
    folders = [folder for each in templates for folder in (each.folder, each.spec.root_disk.parent)]
    if user := machines.user_mode:
        folders += [user.kernel.folder, user.guest.folder, user.initrd.parent]
    return list(dict.fromkeys(folders))


def _relocate(item: Any, theirs: Mapping[Path, Path]) -> Any:
    """Return data in which each path in our folders is the path in `theirs` instead."""
    if isinstance(item, Path):
        places = (there / item.relative_to(here) for here, there in theirs.items() if item.is_relative_to(here))
        return next(places, item)
    if is_dataclass(item) and not isinstance(item, type):
        return replace(item, **{each.name: _relocate(getattr(item, each.name), theirs) for each in fields(item)})
    return item
