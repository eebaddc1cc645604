"""What a campaign needs of the place where its machines run, and the default: threads of this process.

An executor makes recordings, records recoveries and checks crash states. Its orders are plain data. Planning,
judging and storing stay with the campaign, so they are the same wherever the machines run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol

from rig.campaign import record, recover
from rig.campaign.verification import Job, verify
from rig.contract.findings import Finding
from rig.contract.scenario import Scenario
from rig.faults import Logs
from rig.machines import machine
from rig.machines.guests import Source
from rig.machines.pool import Pooled, Pools
from rig.planning.matrix import Profile
from rig.recordings.archive import Recording
from rig.recordings.recoveries import Recoveries


class Executor(Protocol):
    """Runs machines. Its methods are called from several threads, and each call keeps one machine busy."""

    # Set once the campaign is being stopped: then a lost machine is an error and no verdict.
    stopped: threading.Event
    # The most contents of a job, so that results come back often enough.
    part_max: int

    @property
    def machine_count(self) -> int:
        """Return how many machines run at a time now."""

    @property
    def thread_count(self) -> int:
        """Return the most calls that can be of use at a time."""

    def prepare(self, scenarios: Sequence[Scenario]) -> None:
        """Make or find the machines for these scenarios, before anything is measured."""

    def record(self, scenario: Scenario, folder: Path, *, reproduce: bool) -> Recording:
        """Record a scenario into a folder, see `rig.campaign.record`."""

    def recover(self, scenario: Scenario, profile: Profile, logs: Logs, kept: Recoveries) -> None:
        """Record recoveries of a scenario, see `rig.campaign.recover`."""

    def findings(self, job: Job, enough: threading.Event, *, is_emulated: bool) -> Generator[Finding, None, None]:
        """Give the findings of a job in order, see `rig.campaign.verification`; none follow once there are enough."""

    def stop(self) -> None:
        """End what runs now, without waiting for it."""

    def close(self) -> None:
        """Leave no machine behind; nothing runs any more."""


class LocalThreads:
    """Machines of this host, one for each thread that calls."""

    part_max = 1 << 30

    def __init__(
        self,
        source: Source,
        jobs: int = 0,
        pools: Pools | None = None,
        says: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.stopped = threading.Event()
        self._source = source
        self._says = says
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._pools = pools or Pools()

    @property
    def machine_count(self) -> int:
        """Return how many machines run at a time."""
        return self._jobs

    thread_count = machine_count

    def prepare(self, scenarios: Sequence[Scenario]) -> None:
        """Make the templates that the cache lacks."""
        for scenario in scenarios:
            self._source.of(scenario)

    def record(self, scenario: Scenario, folder: Path, *, reproduce: bool) -> Recording:
        """Record in a clone of the recorder."""
        return record.record(scenario, self._source.of(scenario).recorder, folder, self._says, reproduce=reproduce)

    def recover(self, scenario: Scenario, profile: Profile, logs: Logs, kept: Recoveries) -> None:
        """Recover in clones of the verifier."""
        recover.record(scenario, profile, self._pool(scenario).verifier, logs, kept, self.stopped)

    def findings(self, job: Job, enough: threading.Event, *, is_emulated: bool) -> Generator[Finding, None, None]:
        """Check states in the fastest machine that works, or under emulation."""
        pooled = self._pool(job.scenario)
        checker = pooled.verifier if is_emulated else pooled.checker
        return verify(job, checker, self.stopped, pooled.verifier, enough)

    def stop(self) -> None:
        """Kill all machines."""
        self.stopped.set()
        machine.stop_all()

    def close(self) -> None:
        """Stop the machines at rest, and let machines start again."""
        self._pools.close()
        machine.allow_all()

    def _pool(self, scenario: Scenario) -> Pooled:
        return self._pools.of(self._source.of(scenario))
