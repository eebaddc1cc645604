"""Check crash states: jobs for verifier clones.

A job is all that it takes to judge some crash states of one file of logs, in plain words: it can be sent to any process
or machine that has the file. A panic, a hang or a lost machine costs its crash state a second try in a fresh clone and
then is that state's verdict; the others go on.
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
from rig.machines.session import Session
from rig.machines.template import Template

_TRIES = 2
_PANIC = "Kernel panic"


@dataclass(frozen=True)
class Job:
    """Crash states of one file of logs for one machine."""

    # How the database is opened, and what it must hold.
    scenario: Scenario
    logs: LogFile
    # The content of each state, in the order in which the base moves forward only, and the clock that its machine comes
    # back with; None leaves that alone.
    cuts: tuple[tuple[str, Clock | None], ...]


def verify(job: Job, template: Template, stopped: threading.Event | None = None) -> Generator[Finding, None, None]:
    """Rebuild the states of a job from their addresses and yield what is found in each, in order; see `check`."""
    with job.logs.opened() as logs:
        states = [logs.parse(content) for content, _ in job.cuts]
        clocks = [clock for _, clock in job.cuts]
        yield from check(job.scenario, template, logs.first, states, clocks, stopped)


def check(  # noqa: PLR0917 - each is of another type, or one of two lists of one length
    scenario: Scenario,
    template: Template,
    log: WriteLog,
    states: Sequence[CrashState],
    clocks: Sequence[Clock | None] = (),
    stopped: threading.Event | None = None,
) -> Generator[Finding, None, None]:
    """Check states of the logs of one file, sorted so that the base moves forward only; yield a finding for each.

    `stopped` says that machines are lost because we are being stopped, which is nobody's verdict. `clocks` has the
    clock that the machine comes back with, for each state; None, or no clocks at all, leaves it alone.
    """
    done = tries = 0
    clocks = clocks or list(repeat(None, len(states)))
    while done < len(states):
        console = ""
        try:
            with template.clone(recording=log.path) as machine:
                try:
                    for finding in Session(machine, scenario, log).findings(states[done:], clocks[done:]):
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
