"""Judge crash states: jobs for verifier clones, and verdicts from what these find.

A job is all that it takes to judge some crash states of one file of logs, in plain words: it can be sent to any process
or machine that has the file. A panic, a hang or a lost machine costs its crash state a second try in a fresh clone and
then is that state's verdict; the others go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from rig.contract.clocks import Clock
from rig.contract.errors import VmError
from rig.contract.findings import UNANSWERED, Finding, FindingKind
from rig.contract.results import LiveFinding, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, LogFile, WriteLog
from rig.machines.session import Session
from rig.machines.template import Template
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline

# Reopening takes less than `STATE_LIMIT_S` on the host, and the guest's clock may run ahead of it under emulation.
_CLOCK_LIMIT_S = 3600
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


def verdict(cut: Cut, finding: Finding, timeline: Timeline) -> Verdict:
    """Judge a finding at the instant of a cut."""
    acked = timeline.acked(cut.entry)
    # A state that answers for fewer marks than were written by then may still hold what those transactions wrote.
    issued = timeline.issued(cut.entry if cut.state.cut_at is None else cut.state.latest_instant)
    blank = Verdict(
        cut.scenario, cut.address, cut.content, cut.entry, cut.clock or "", cut.state.holds,
        VerdictKind.INCONCLUSIVE, acked, None, 0, 0, cut.weight_ns, "",
    )  # fmt: skip
    return _verdict(
        blank,
        _under_its_clock(cut, finding),
        issued,
        lambda recovered: timeline.lost_ns(recovered, cut.entry),
    )


def _under_its_clock(cut: Cut, finding: Finding) -> Finding:
    """Return the finding, or that it says nothing of the cut: the clock was not the one that was asked for."""
    is_answer = finding.kind not in UNANSWERED
    if cut.clock is None or not is_answer:
        return finding
    read_s = finding.clock_s
    if read_s is not None and 0 <= read_s - cut.clock.seconds < _CLOCK_LIMIT_S:
        return finding
    detail = f"judged while the clock read {read_s}, and it was to be {cut.clock.seconds}; {finding.detail}"
    return replace(finding, kind=FindingKind.INCONCLUSIVE, recovered=None, detail=detail)


def _verdict(blank: Verdict, finding: Finding, issued: int, lost_ns_of: Callable[[int], int]) -> Verdict:
    """Fill in what a finding says of an instant at which `blank.acked` transactions were acknowledged."""
    acked = blank.acked
    kind, lost, lost_ns, detail = VerdictKind.INCONCLUSIVE, 0, 0, finding.detail
    if finding.kind is not FindingKind.PREFIX:
        kind = VerdictKind(finding.kind)
    elif finding.recovered is None or finding.recovered > issued:
        detail = f"recovered {finding.recovered} of {issued} issued transactions: the recording contradicts itself"
    elif finding.recovered < acked:
        kind = VerdictKind.LOST_SUFFIX
        lost = acked - finding.recovered
        lost_ns = lost_ns_of(finding.recovered)
        detail = f"transactions {finding.recovered + 1} to {acked} were acknowledged and are gone"
    else:
        kind = VerdictKind.DURABLE
    return replace(blank, kind=kind, recovered=finding.recovered, lost=lost, lost_virtual_ns=lost_ns, detail=detail)


def live_verdicts(scenario_id: str, findings: Sequence[LiveFinding]) -> list[Verdict]:
    """Judge what was found in the running guest: there `acked` transactions had been acknowledged, `issued` begun."""
    judged = [
        _verdict(
            Verdict(
                scenario_id,
                one["state"],
                one["state"],
                0,
                "",
                "",
                VerdictKind.INCONCLUSIVE,
                one["acked"],
                None,
                0,
                0,
                0,
                "",
            ),
            Finding.of(one),
            one["issued"],
            lambda _: 0,
        )
        for one in findings
    ]
    # What was done to the machine belongs to whatever came of it.
    return [
        one if told["detail"] in one.detail else replace(one, detail=f"{one.detail}; {told['detail']}")
        for one, told in zip(judged, findings, strict=True)
    ]


def _lost(console: str, error: Exception) -> Finding:
    if _PANIC in console:
        return Finding(FindingKind.KERNEL_PANIC, detail=console[console.index(_PANIC) :].splitlines()[0])
    kind = FindingKind.HANG if isinstance(error, TimeoutError) else FindingKind.INCONCLUSIVE
    return Finding(kind, detail=str(error))
