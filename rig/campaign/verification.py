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
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat

from rig.campaign.session import VerifierSession
from rig.contract.clocks import Clock
from rig.contract.errors import DisagreementError, VmError
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
    job: Job, machines: Clones, stopped: threading.Event | None = None, reference: Clones | None = None
) -> Generator[Finding, None, None]:
    """Rebuild the states of a job from their addresses and yield a finding for each, in order; see `check`."""
    with job.logs.opened() as logs:
        states = [logs.parse(content) for content, _ in job.cuts]
        clocks = [clock for _, clock in job.cuts]
        yield from check(job.scenario, machines, logs.first, states, clocks, stopped, reference)


def check(  # noqa: PLR0917 - all types differ; mypy catches a swap
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    clocks: Sequence[Clock | None] = (),
    stopped: threading.Event | None = None,
    reference: Clones | None = None,
) -> Generator[Finding, None, None]:
    """Check states of the logs of one file, sorted so that the base only moves forward; yield a finding for each.

    `clocks` has, for each state, the clock that the machine comes back with; None, or no clocks at all, leaves the
    clock unchanged. If `stopped` is set, machines are lost because we are being stopped: that is an error, not a
    verdict. After the last finding raise VmError if a `reference` shows something else.
    """
    clocks = clocks or list(repeat(None, len(states)))
    compared: dict[FindingKind, tuple[int, Finding]] = {}
    done = tries = lost_count = 0
    while done < len(states):
        if reference and lost_count >= _LOST_MAX:
            machines = reference
        is_other = reference is not None and machines is not reference
        end = done + 1 if tries and reference else len(states)
        console = ""
        try:
            with (reference if tries and reference else machines).clone(recording=log.path) as machine:
                try:
                    session = VerifierSession(machine, scenario, log, _PATIENCE if tries else 1)
                    for finding in session.findings(states[done:end], clocks[done:end]):
                        told = finding
                        if reference and is_other and not tries and finding.kind in _ASKED_AGAIN:
                            same = slice(done, done + 1)
                            (told,) = check(scenario, reference, log, states[same], clocks[same], stopped)
                        elif is_other and not tries:
                            _to_compare(compared, done, finding)
                        done, tries = done + 1, 0
                        yield told
                finally:
                    console = machine.console_text()
        except (VmError, TimeoutError) as error:
            if stopped and stopped.is_set():
                raise
            tries += 1
            lost_count += 1
            if tries == _TRIES:
                done, tries = done + 1, 0
                yield _lost(console, error)
    if reference and compared:
        chosen = dict(sorted(compared.values()))
        some = [states[number] for number in chosen]
        under = [clocks[number] for number in chosen]
        # Closed at once if the two differ: until then its machine goes on.
        with closing(check(scenario, reference, log, some, under, stopped)) as again:
            _require_equal(scenario, some, chosen.values(), again)


def _to_compare(compared: dict[FindingKind, tuple[int, Finding]], number: int, finding: Finding) -> None:
    """Note the last prefix, and the first finding of each other kind."""
    if finding.kind is FindingKind.PREFIX:
        compared[finding.kind] = number, finding
    else:
        compared.setdefault(finding.kind, (number, finding))


def _require_equal(
    scenario: Scenario, states: Sequence[CrashState], found: Iterable[Finding], again: Iterable[Finding]
) -> None:
    for state, one, other in zip(states, found, again, strict=True):
        if (one.kind, one.recovered, one.files) != (other.kind, other.recovered, other.files):
            shown = " and ".join(f"{each.kind} {each.recovered} {each.detail} {each.files}" for each in (one, other))
            raise DisagreementError(f"two kinds of machines disagree on {state.id} of {scenario.id}: they show {shown}")


def _lost(console: str, error: Exception) -> Finding:
    if _PANIC in console:
        return Finding(FindingKind.KERNEL_PANIC, detail=console[console.index(_PANIC) :].splitlines()[0])
    kind = FindingKind.HANG if isinstance(error, TimeoutError) else FindingKind.INCONCLUSIVE
    return Finding(kind, detail=str(error))
