"""Machines and verifications that are not real, and workers of a Dask cluster in this process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.campaign.verification import Job
from rig.contract.errors import VmError
from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.machines.argv import Accelerator, MachineSpec, Role
from rig.machines.guests import Machines
from rig.machines.template import Template

SHORT_S = 0.05
LIMIT_S = 60


class StillTemplate(Template):
    """A template whose machines do nothing."""

    @contextmanager
    def clone(self, **_: Any) -> Iterator[Any]:
        if self.folder.name == "broken":
            raise VmError("it does not answer")
        yield None


def machines_of(name: str) -> Machines:
    nowhere = Path("/nowhere") / name
    spec = MachineSpec(Role.VERIFIER, Accelerator.TCG, 1, nowhere, nowhere, nowhere / "base" / "root.img")
    return Machines(StillTemplate(spec, nowhere, f"r-{name}"), StillTemplate(spec, nowhere, f"v-{name}"))


@dataclass
class Source:
    machines: Machines

    def of(self, _: Scenario) -> Machines:
        return self.machines


@dataclass
class Verifier:
    """In place of the machines of a worker: each job waits at the gate, and its findings name its states."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    counts: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None

    def findings(self, job: Job, enough: threading.Event, *, is_emulated: bool) -> Generator[Finding, None, None]:
        assert not is_emulated
        for state, _clock in job.cuts:
            self.counts[state] += 1
        self.begun.release()
        assert self.gate.wait(LIMIT_S)
        if self.error:
            raise self.error
        for state, _clock in job.cuts:
            if enough.is_set():
                return
            yield Finding(FindingKind.PREFIX, detail=state)


def busy_worker(workers: Any) -> Any:
    """The one worker that carries out a task."""
    (busy,) = [
        worker
        for worker in workers.workers.values()
        if worker.status.name == "running" and worker.state.executing_count
    ]
    return busy


def wait_for(holds: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(int(LIMIT_S / SHORT_S)):
        if holds():
            return
        pause.wait(SHORT_S)
    raise AssertionError("it does not come about")


async def stopping(heart: Any) -> None:
    heart.stop()


async def starting(heart: Any) -> None:
    heart.start()
