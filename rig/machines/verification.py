"""Check crash states: jobs for verifier clones.

A job is plain data and holds everything needed to judge some crash states of one file of logs, so it can be sent to any
process or machine that has the file. After a panic, a hang or a lost machine, the crash state is tried again in a fresh
clone. If that fails too, the failure is the verdict of that state; the other states are unaffected.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import repeat

from rig.contract.clocks import Clock
from rig.contract.errors import VmError
from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, LogFile, WriteLog
from rig.machines.pool import Clones
from rig.machines.session import Session

_TRIES = 2
# A guest on a busy host believes that an engine is stuck which only waits for a processor. So it waits longer the
# second time; whether the engine is stuck is for `Session` to say.
_PATIENCE = 6
_PANIC = "Kernel panic"


@dataclass(frozen=True)
class Job:
    """Crash states of one file of logs for one machine."""

    # Says how to open the database and what it must hold.
    scenario: Scenario
    logs: LogFile
    # The address of each state's content, and the clock that its machine comes back with (None: unchanged). Sorted so
    # that the base only moves forward.
    cuts: tuple[tuple[str, Clock | None], ...]


def verify(job: Job, machines: Clones, stopped: threading.Event | None = None) -> Generator[Finding, None, None]:
    """Rebuild the states of a job from their addresses and yield a finding for each, in order; see `check`."""
    with job.logs.opened() as logs:
        states = [logs.parse(content) for content, _ in job.cuts]
        clocks = [clock for _, clock in job.cuts]
        yield from check(job.scenario, machines, logs.first, states, clocks, stopped)


def check(  # noqa: PLR0917 - all types differ; mypy catches a swap
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    clocks: Sequence[Clock | None] = (),
    stopped: threading.Event | None = None,
) -> Generator[Finding, None, None]:
    """Check states of the logs of one file, sorted so that the base only moves forward; yield a finding for each.

    `clocks` has, for each state, the clock that the machine comes back with; None, or no clocks at all, leaves it
    unchanged. `stopped` means that machines are lost because we are being stopped: that is an error, not a verdict.
    """
    done = tries = 0
    clocks = clocks or list(repeat(None, len(states)))
    while done < len(states):
        console = ""
        try:
            with machines.clone(recording=log.path) as machine:
                try:
                    for finding in Session(machine, scenario, log, _PATIENCE if tries else 1).findings(
                        states[done:], clocks[done:]
                    ):
                        done, tries = done + 1, 0
                        yield finding
                finally:
                    console = machine.console_text()
        except (VmError, TimeoutError) as error:
            if stopped and stopped.is_set():
                raise
            tries += 1
            if tries == _TRIES:
                done, tries = done + 1, 0
                yield _lost(console, error)


def _lost(console: str, error: Exception) -> Finding:
    if _PANIC in console:
        return Finding(FindingKind.KERNEL_PANIC, detail=console[console.index(_PANIC) :].splitlines()[0])
    kind = FindingKind.HANG if isinstance(error, TimeoutError) else FindingKind.INCONCLUSIVE
    return Finding(kind, detail=str(error))
