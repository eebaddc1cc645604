"""One verifier clone at work: crash states go in as requests, findings come out as answers.

The host sends requests ahead of the answers, so that the guest never waits for the host.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from rig.contract.clocks import Clock
from rig.contract.errors import VmError
from rig.contract.faultspecs import SPECS
from rig.contract.findings import Finding, FindingKind
from rig.contract.geometry import LITERALS_FROM
from rig.contract.injections import ERRORS
from rig.contract.messages import decode
from rig.contract.scenario import Scenario
from rig.engines import load
from rig.faults import CrashState, Extent, WriteLog
from rig.machines.machine import Machine
from rig.recordings.timeline import Timeline

READY_LIMIT_S = 60
# A database of a few megabytes recovers in tens of milliseconds, even under emulation.
STATE_LIMIT_S = 60
# The guest gives a later life this many times as long as a crash state (`rig.guest.programs.own.limits_of`).
_LIFE_FACTOR = 9
_AHEAD = 3
# Nobody sits at a shell for longer.
_SHELL_LIMIT_S = 24 * 3600
# A guest does not notice that its processor was taken away. So an engine is stuck only if the machine really had this
# share of the time that a crash state may take.
STUCK_SHARE = 0.8


class Look(StrEnum):
    """What may be asked about the files of a crash state, in the words of the guest (`rig.guest.filemap`)."""

    PLACES = "places"
    FILES = "files"
    SHELL = "shell"


@dataclass(frozen=True)
class Recovered:
    """How one crash state was recovered."""

    finding: Finding
    # The write log of the recovery, in the format of dm-log-writes.
    log: bytes
    # The block trace of the same requests, see `rig.faults.log.submissions`.
    trace: bytes
    # The digest of the whole disk after the recovery, see `rig.contract.geometry.disk_digest`.
    digest: str
    # Where the files are on the disk after the recovery: (offset, length) in bytes, sorted.
    places: tuple[tuple[int, int], ...]
    # The calls of a later life under supervision, as `rig.contract.calls.SeenCall` in JSON.
    calls: Sequence[Mapping[str, Any]] = ()


class VerifierSession:
    """One clone at work. Its base image holds the log up to entry `_base_end`."""

    def __init__(self, machine: Machine, scenario: Scenario, log: WriteLog, patience: int = 1) -> None:
        """Begin; the guest waits `patience` times as long as usual for a database."""
        self._patience = patience
        self._machine = machine
        self._state_limit_s = load(scenario.engine_module).spec.state_limit_s
        self._log = log
        self._base_end = 0
        self._later_count = SPECS[scenario.fault].later_count
        self._life_limit_s = _LIFE_FACTOR * self._state_limit_s + STATE_LIMIT_S
        failed = Timeline(log.marks).failed if SPECS[scenario.fault].injection in ERRORS else ()
        machine.send(asdict(replace(scenario.reopening_orders, failed=failed)))

    def findings(self, cuts: Sequence[tuple[CrashState, Clock | None]], enough: threading.Event) -> Iterator[Finding]:
        """Check states, each under its clock if it has one; yield the findings in order, until there are enough."""
        self._machine.receive(READY_LIMIT_S)
        waiting: list[CrashState] = []
        for state, clock in cuts:
            if enough.is_set():
                # It goes on with what it was sent, and nobody waits for that.
                self._machine.is_spent = True
                return
            if clock:
                # The machine keeps the time that it was given.
                self._machine.is_spent = True
            self._machine.send(self.request(state) | ({"clock": clock.seconds} if clock else {}))
            waiting.append(state)
            if len(waiting) > _AHEAD:
                yield self._answer(waiting.pop(0))
        for state in waiting:
            yield self._answer(state)

    def recoveries(self, states: Sequence[CrashState]) -> Iterator[Recovered]:
        """Recover states while recording what is written; yield the recoveries in order.

        If the fault says so, the recovered database works on, and that is recorded too.
        """
        self._machine.receive(READY_LIMIT_S)
        limit_s = (self._life_limit_s if self._later_count else STATE_LIMIT_S) * self._patience
        for state in states:
            self._machine.send(self.request(state) | {"recover": True, "later_count": self._later_count})
            answer = self._machine.receive(limit_s)
            finding = self._finding(state, answer)
            places = tuple((offset, length) for offset, length in answer["places"])
            log, trace = _unpack(answer["log"]), _unpack(answer["trace"])
            yield Recovered(finding, log, trace, answer["digest"], places, answer["calls"])

    def looks(self, states: Sequence[CrashState], look: Look) -> Iterator[Any]:
        """Mount states, and yield what a look at the files of each shows; None for a state that cannot be mounted."""
        self._machine.receive(READY_LIMIT_S)
        for state in states:
            self._machine.send(self.request(state) | {"look": look.value})
            yield self._machine.receive(STATE_LIMIT_S * self._patience)[look.value]

    def shell(self, state: CrashState, typed: Iterator[bytes], printed: Callable[[bytes], object]) -> int:
        """Mount a state and start a shell there; return its exit code.

        `typed` gives what the user types, and nothing after the shell has ended; `printed` takes what is printed, from
        another thread.
        """
        self._machine.receive(READY_LIMIT_S)
        self._machine.send(self.request(state) | {"look": Look.SHELL.value})
        ended: Future[None] = Future()

        def listen() -> None:
            try:
                while "ended" not in (answer := self._machine.receive(_SHELL_LIMIT_S)):
                    printed(base64.b64decode(answer["printed"]))
            except (OSError, VmError) as error:  # nobody takes what is printed any more, or the machine is lost
                ended.set_exception(error)
            else:
                ended.set_result(None)

        # We may be stopped while it waits for the machine, which then ends it.
        threading.Thread(target=listen, daemon=True).start()
        for part in typed:
            if ended.done():
                break
            if part:
                self._machine.send({"typed": base64.b64encode(part).decode()})
        ended.result()
        self._machine.send({"over": True})
        return int(self._machine.receive(STATE_LIMIT_S)["exit_code"])

    def request(self, state: CrashState) -> dict[str, Any]:
        """Return what the guest needs in order to check a state, and advance the base to that state."""
        advance = state.advance(self._log, self._base_end)
        self._base_end = state.base_end
        extents = state.extents(self._log)
        request: dict[str, Any] = {
            "state": state.id, "advance": _pack(advance), "extents": _pack(extents), "open": bool(state.damages),
            "patience": self._patience,
        }  # fmt: skip
        if any(extent.literal for extent in extents):
            literals = b"".join(extent.literal for extent in extents)
            request["literals"] = base64.b64encode(zlib.compress(literals)).decode()
        if state.unreadable:
            request["unreadable"] = state.unreadable
        return request

    def _answer(self, state: CrashState) -> Finding:
        return self._finding(state, self._machine.receive(STATE_LIMIT_S * self._patience))

    def _finding(self, state: CrashState, answer: Mapping[str, Any]) -> Finding:
        if answer["state"] != state.id:
            raise VmError(f"asked for {state.id}, the guest answers for {answer['state']}")
        finding = decode(Finding, answer, allow_more=True)
        if finding.kind is not FindingKind.STUCK:
            return finding
        if (had_s := self._machine.answered_in_s) < self._state_limit_s * STUCK_SHARE:
            raise TimeoutError(
                f"{finding.detail}, but the machine had a processor for only {had_s:.1f} s of that: this host is too "
                "busy, run fewer programs or fewer machines at a time (--jobs)"
            )
        return finding


def _pack(extents: Sequence[Extent]) -> str:
    rows, literal_bytes = [], 0
    for extent in extents:
        source = LITERALS_FROM + literal_bytes if extent.literal else extent.source_offset_bytes
        rows.append((extent.device_offset_bytes, source, extent.length_bytes))
        literal_bytes += len(extent.literal)
    return base64.b64encode(np.array(rows, dtype="<u8").tobytes()).decode()


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
