"""The workers of a Dask cluster: which there are, which get work, and which have been lost.

A worker is silent after `_SILENT_LOOKS` looks without a new heartbeat. Looks are counted, not seconds: on a host so
busy that heartbeats are late, looks are late too. A silent worker that gives a sign of life gets work again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rig.campaign.executors.station import Host
from rig.contract.errors import HostError, VmError

if TYPE_CHECKING:
    from distributed import Client

LOOK_S = 1.0
_SILENT_LOOKS = 30
# How long a campaign waits without any worker.
_ALONE_S = 600
_END_S = 10


class LostError(Exception):
    """A worker is gone or silent, or nobody waits for it any more."""


@dataclass
class Worker:
    """A worker, as the campaign sees it."""

    address: str
    thread_count: int
    host: Host | None = None
    # Whether it is being examined, or has been; whether machines have answered there; if not, why.
    is_known: bool = False
    is_ready: bool = False
    refusal: str = ""
    is_gone: bool = False
    task_count: int = 0
    machines_keys: set[str] = field(default_factory=set)
    last_seen: float = 0.0
    silent_looks: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether it has given no sign of life for long."""
        return self.silent_looks >= _SILENT_LOOKS


class Roster:
    """Watches the workers of a cluster from `begin` to `end`.

    `refusal_of` examines a worker and returns why it gets no work.
    """

    def __init__(
        self, client: Client, refusal_of: Callable[[Worker], str], stopped: threading.Event, says: Callable[[str], None]
    ) -> None:
        self._client: Any = client
        self._refusal_of = refusal_of
        self._stopped = stopped
        self._says = says
        self._change = threading.Condition()
        self._workers: dict[str, Worker] = {}
        self._failure = ""
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def able(self) -> list[Worker]:
        """Return the workers that get work."""
        with self._change:
            return [worker for worker in self._workers.values() if worker.is_ready and not worker.is_silent]

    def begin(self) -> None:
        """Watch, and return once all workers there are have been examined; raise HostError if none can be used."""
        self._start(self._watch)

        def all_decided() -> bool:
            known = self._workers.values()
            return bool(known) and all(worker.is_ready or worker.refusal for worker in known)

        with self._change:
            self._wait_until(all_decided)
            if not self.able:
                reasons = "; ".join(f"{worker.address}: {worker.refusal}" for worker in self._workers.values())
                raise HostError(f"no worker can be used: {reasons}")

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_END_S)

    @contextmanager
    def free(self, enough: threading.Event) -> Iterator[Worker | None]:
        """Give a worker with a free thread for the length of a block; None once there is `enough`."""

        def least_busy() -> Worker | None:
            idle = [worker for worker in self.able if worker.task_count < worker.thread_count]
            return max(idle, key=lambda worker: worker.thread_count - worker.task_count, default=None)

        with self._change:
            self._wait_until(lambda: enough.is_set() or least_busy())
            worker = None if enough.is_set() else least_busy()
            if worker:
                worker.task_count += 1
        try:
            yield worker
        finally:
            if worker:
                with self._change:
                    worker.task_count -= 1
                    self._change.notify_all()

    def require(self, worker: Worker, enough: threading.Event) -> None:
        """Raise LostError unless somebody waits for this worker, and may go on to do so."""
        with self._change:
            if self._stopped.is_set() or self._failure or enough.is_set():
                raise LostError("is not needed any more")
            if worker.is_gone:
                raise LostError("is gone")
            if worker.is_silent and self.able:
                raise LostError("gives no sign of life")

    def _wait_until(self, holds: Callable[[], object]) -> None:
        """Wait, holding the lock; raise VmError if stopped meanwhile, HostError if there is no worker for long."""
        end_s = time.monotonic() + _ALONE_S
        while not holds():
            if self._stopped.is_set():
                raise VmError("the campaign is being stopped")
            if self.able:
                end_s = time.monotonic() + _ALONE_S
            elif time.monotonic() > end_s:
                self._failure = f"no worker came within {_ALONE_S} s; start some and repeat the command"
            if self._failure:
                raise HostError(self._failure)
            self._change.wait(LOOK_S)

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                rows = self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]
            except OSError as error:
                with self._change:
                    self._failure = f"the scheduler is gone ({error}); what was measured is kept, repeat the command"
                return
            with self._change:
                for worker in self._look(rows):
                    self._start(partial(self._examine, worker))
                self._change.notify_all()
            self._ended.wait(LOOK_S)

    def _look(self, rows: Mapping[str, Mapping[str, Any]]) -> list[Worker]:
        """Take what the scheduler says of its workers; return those that have to be examined."""
        for address in self._workers.keys() - rows.keys():
            self._workers.pop(address).is_gone = True
        for address, row in rows.items():
            worker = self._workers.setdefault(address, Worker(address, row["nthreads"]))
            worker.silent_looks = worker.silent_looks + 1 if row["last_seen"] == worker.last_seen else 0
            worker.last_seen = row["last_seen"]
        fresh = [worker for worker in self._workers.values() if not worker.is_known and not worker.is_silent]
        for worker in fresh:
            worker.is_known = True
        return fresh

    def _examine(self, worker: Worker) -> None:
        try:
            refusal = self._refusal_of(worker)
        except LostError:
            worker.is_known = False
            return
        with self._change:
            worker.refusal, worker.is_ready = refusal, not refusal
            self._change.notify_all()
        if refusal:
            self._says(f"worker {worker.address} gets no work: {refusal}")

    def _start(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()
