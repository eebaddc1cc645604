"""Put crash states before a database in verifier clones, and turn what it finds into verdicts.

A panic, a hang or a lost machine costs its crash state a second try in a fresh clone and then is that state's verdict;
the others go on. Requests are sent ahead of the answers, so that the guest never waits for the host.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rig.contract.clocks import Clock
from rig.contract.errors import VmError
from rig.contract.findings import UNANSWERED, Finding, FindingKind
from rig.contract.geometry import LITERALS_FROM
from rig.contract.results import LiveFinding, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Extent, WriteLog
from rig.machines.machine import Machine
from rig.machines.template import Template
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline

_READY_LIMIT_S = 60
# A database on a few megabytes recovers in tens of milliseconds, also under emulation.
STATE_LIMIT_S = 60
_AHEAD = 3
# Reopening takes less than `STATE_LIMIT_S` on the host, and the guest's clock may run ahead of it under emulation.
_CLOCK_LIMIT_S = 3600
_TRIES = 2
_PANIC = "Kernel panic"


def verify(  # noqa: PLR0917 - each is of another type, so none can stand in another's place unseen
    scenario: Scenario,
    template: Template,
    recording: Path,
    log: WriteLog,
    states: Sequence[CrashState],
    found: Callable[[int, Finding], None],
    stopped: threading.Event | None = None,
    clocks: Sequence[Clock | None] = (),
) -> None:
    """Check states, sorted so that the base moves forward only; call `found` with each one's rank and finding.

    `stopped` says that machines are lost because we are being stopped, which is nobody's verdict. `clocks` has the
    clock that the machine comes back with, for each state; None, or no clocks at all, leaves it alone.
    """
    done = tries = 0
    clocks = clocks or [None] * len(states)
    while done < len(states):
        console = ""
        try:
            with template.clone(recording=recording) as machine:
                try:
                    for finding in _Session(machine, scenario, log).findings(states[done:], clocks[done:]):
                        found(done, finding)
                        done, tries = done + 1, 0
                finally:
                    console = machine.console_text()
        except (VmError, TimeoutError) as error:
            if stopped and stopped.is_set():
                raise
            tries += 1
            if tries == _TRIES:
                found(done, _lost(console, error))
                done, tries = done + 1, 0


@dataclass(frozen=True)
class Recovered:
    """How one crash state was recovered."""

    finding: Finding
    # The write log of the recovery, as dm-log-writes wrote it.
    log: bytes
    # Of the whole disk afterwards, see `rig.contract.geometry.disk_digest`.
    digest: str
    # Where the files on it stand afterwards: (offset, length) in bytes, sorted.
    files: tuple[tuple[int, int], ...]


def recover(  # noqa: PLR0917 - each is of another type, so none can stand in another's place unseen
    scenario: Scenario,
    template: Template,
    recording: Path,
    log: WriteLog,
    states: Sequence[CrashState],
    stopped: threading.Event | None = None,
) -> list[Recovered | None]:
    """Record how each state, sorted as for `verify`, is recovered; None where the machine was lost over it."""
    found: list[Recovered | None] = []
    while len(found) < len(states):
        try:
            with template.clone(recording=recording) as machine:
                for one in _Session(machine, scenario, log).recoveries(states[len(found) :]):
                    found.append(one)  # noqa: PERF402 - what came before an error stays
        except (VmError, TimeoutError):
            if stopped and stopped.is_set():
                raise
            found.append(None)
    return found


def verdict(cut: Cut, finding: Finding, timeline: Timeline) -> Verdict:
    """Judge a finding at the instant of a cut."""
    acked = timeline.acked(cut.entry)
    # A state that answers for fewer marks than were written by then may still hold what those transactions wrote.
    issued = timeline.issued(cut.entry if cut.state.cut_at is None else cut.state.latest_instant)
    return _verdict(
        Verdict(cut.cell, cut.name, cut.content, VerdictKind.INCONCLUSIVE, acked, None, 0, 0, cut.weight_ns, ""),
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


def live_verdicts(cell: str, findings: Sequence[LiveFinding]) -> list[Verdict]:
    """Judge what was found in the running guest: there `acked` transactions had been acknowledged, `issued` begun."""
    judged = [
        _verdict(
            Verdict(cell, one["state"], one["state"], VerdictKind.INCONCLUSIVE, one["acked"], None, 0, 0, 0, ""),
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


class _Session:
    """One clone at work: its base image stands at `_base_end`, an entry of the log."""

    def __init__(self, machine: Machine, scenario: Scenario, log: WriteLog) -> None:
        self._machine = machine
        self._log = log
        self._base_end = 0
        machine.send(scenario.orders.message)

    def findings(self, states: Sequence[CrashState], clocks: Sequence[Clock | None]) -> Iterable[Finding]:
        self._machine.receive(_READY_LIMIT_S)
        waiting: list[CrashState] = []
        for state, clock in zip(states, clocks, strict=True):
            self._machine.send(self._request(state) | ({"clock": clock.seconds} if clock else {}))
            waiting.append(state)
            if len(waiting) > _AHEAD:
                yield self._answer(waiting.pop(0))
        for state in waiting:
            yield self._answer(state)

    def recoveries(self, states: Sequence[CrashState]) -> Iterable[Recovered]:
        self._machine.receive(_READY_LIMIT_S)
        for state in states:
            self._machine.send(self._request(state) | {"recover": True})
            answer = self._machine.receive(STATE_LIMIT_S)
            finding = self._finding(state, answer)
            files = tuple((offset, length) for offset, length in answer["files"])
            yield Recovered(finding, zlib.decompress(base64.b64decode(answer["log"])), answer["digest"], files)

    def _request(self, state: CrashState) -> dict[str, Any]:
        advance = state.advance(self._log, self._base_end)
        self._base_end = state.base_end
        extents = state.extents(self._log)
        request: dict[str, Any] = {"state": state.id, "advance": _packed(advance), "extents": _packed(extents)}
        if any(extent.literal for extent in extents):
            literals = b"".join(extent.literal for extent in extents)
            request["literals"] = base64.b64encode(zlib.compress(literals)).decode()
        if state.unreadable:
            request["unreadable"] = state.unreadable
        return request

    def _answer(self, state: CrashState) -> Finding:
        return self._finding(state, self._machine.receive(STATE_LIMIT_S))

    @staticmethod
    def _finding(state: CrashState, answer: Mapping[str, Any]) -> Finding:
        if answer["state"] != state.id:
            raise VmError(f"asked for {state.id}, the guest answers for {answer['state']}")
        return Finding.of(answer)


def _packed(extents: Sequence[Extent]) -> str:
    rows, literal_bytes = [], 0
    for extent in extents:
        source = LITERALS_FROM + literal_bytes if extent.literal else extent.source_offset_bytes
        rows.append((extent.device_offset_bytes, source, extent.length_bytes))
        literal_bytes += len(extent.literal)
    return base64.b64encode(np.array(rows, dtype="<u8").tobytes()).decode()


def _lost(console: str, error: Exception) -> Finding:
    if _PANIC in console:
        return Finding(FindingKind.KERNEL_PANIC, detail=console[console.index(_PANIC) :].splitlines()[0])
    kind = FindingKind.HANG if isinstance(error, TimeoutError) else FindingKind.INCONCLUSIVE
    return Finding(kind, detail=str(error))
