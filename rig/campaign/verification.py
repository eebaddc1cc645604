"""Check crash states: jobs for verifier clones.

A job is plain data and holds everything needed to judge some crash states of one file of logs, so it can be sent to any
process or machine that has the file. After a panic, a hang or a lost machine, the crash state is tried again in a fresh
clone. If that fails too, the failure is the verdict of that state; the other states are unaffected.

States may be checked in machines of one kind and, as a `reference`, some of them again in machines of another, with
another kernel. A state is judged in the reference if its machine was lost, or if its engine died, hung or ran out of
memory: the machine may be the cause. After three lost machines the rest of the job runs in the reference: the cause is
not one state. For each job the last state with a prefix, and the first state of each other kind of finding, are checked
in both. They must show the same findings and the same bytes in the files, or nothing counts.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from rig.campaign.comparison import Comparison
from rig.campaign.session import VerifierSession
from rig.contract.clocks import Clock
from rig.contract.errors import VmError
from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, LogFile, WriteLog
from rig.machines.pool import Clones

_TRIES = 2
# A guest on a busy host takes an engine for stuck that only waits for a processor. So the guest waits longer the second
# time, and `VerifierSession` decides whether the engine is stuck.
_PATIENCE = 6
_PANIC = "Kernel panic"
# Lost machines after which a job moves to the reference, if there is one.
_LOST_MAX = 3
# Ends that a machine may have caused.
_ASKED_AGAIN = {FindingKind.DIED, FindingKind.STUCK, FindingKind.OUT_OF_MEMORY}


@dataclass(frozen=True)
class Job:
    """Crash states of one file of logs for one machine."""

    # Says how to open the database and what it must hold.
    scenario: Scenario
    logs: LogFile
    # The address of each state's content, and the clock that its machine comes back with (None: unchanged). Sorted so
    # that the base only moves forward.
    cuts: tuple[tuple[str, Clock | None], ...]


def verify(
    job: Job,
    machines: Clones,
    stopped: threading.Event | None = None,
    reference: Clones | None = None,
    enough: threading.Event | None = None,
) -> Generator[Finding, None, None]:
    """Rebuild the states of a job from their addresses and yield a finding for each, in order.

    If `stopped` is set, machines are lost because we are being stopped: that is an error, not a verdict. Once `enough`
    is set, no more findings follow. After the last finding raise VmError if a `reference` shows something else.
    """
    with job.logs.open() as logs:
        cuts = [(logs.parse(content), clock) for content, clock in job.cuts]
        check = StateCheck(job.scenario, logs.first, stopped or threading.Event(), enough or threading.Event())
        yield from check.findings(cuts, machines, reference)


@dataclass(frozen=True)
class StateCheck:
    """What all states of a job have in common."""

    scenario: Scenario
    log: WriteLog
    stopped: threading.Event = field(default_factory=threading.Event)
    # Set once there are enough findings.
    enough: threading.Event = field(default_factory=threading.Event)
    # How often a state is checked until it does not cost its machine.
    tries_max: int = _TRIES

    @property
    def _again(self) -> StateCheck:
        """Return the check of states whose findings are wanted in any case."""
        return replace(self, enough=threading.Event())

    def findings(
        self, cuts: Sequence[tuple[CrashState, Clock | None]], machines: Clones, reference: Clones | None = None
    ) -> Generator[Finding, None, None]:
        """Check states, each under its clock, and some of them again in the reference; yield a finding for each.

        The states must be sorted so that the base only moves forward. Without a clock the machine keeps its own.
        """
        comparison = Comparison()
        done = tries = lost_count = 0
        while done < len(cuts) and not self.enough.is_set():
            if reference and lost_count >= _LOST_MAX:
                machines = reference
            is_other = reference is not None and machines is not reference
            end = done + 1 if tries and reference else len(cuts)
            console = ""
            try:
                with (reference if tries and reference else machines).clone(recording=self.log.path) as machine:
                    try:
                        session = VerifierSession(machine, self.scenario, self.log, _PATIENCE if tries else 1)
                        for finding in session.findings(cuts[done:end], self.enough):
                            settled = finding
                            if reference and is_other and not tries and finding.kind in _ASKED_AGAIN:
                                (settled,) = self._again.findings(cuts[done : done + 1], reference)
                            elif is_other and not tries:
                                comparison.note(done, finding)
                            done, tries = done + 1, 0
                            yield settled
                    finally:
                        console = machine.console_text()
            except (VmError, TimeoutError) as error:
                if self.stopped.is_set():
                    raise
                tries += 1
                lost_count += 1
                if tries == self.tries_max:
                    done, tries = done + 1, 0
                    yield _finding_of_lost(console, error)
        if reference and (some := [cuts[number] for number in comparison.numbers]):
            # Closed at once if the two differ: until then its machine goes on.
            with closing(self._again.findings(some, reference)) as again:
                comparison.require_equal(self.scenario, [state for state, _ in some], again)


def _finding_of_lost(console: str, error: Exception) -> Finding:
    if _PANIC in console:
        return Finding(FindingKind.KERNEL_PANIC, detail=console[console.index(_PANIC) :].splitlines()[0])
    kind = FindingKind.HANG if isinstance(error, TimeoutError) else FindingKind.INCONCLUSIVE
    return Finding(kind, detail=str(error))
