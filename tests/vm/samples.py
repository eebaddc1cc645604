"""Short scenarios, and logs rewritten by hand, as if the disk or the engine had behaved differently."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rig.campaign.session import READY_LIMIT_S, STATE_LIMIT_S, VerifierSession
from rig.campaign.verdicts import verdict
from rig.campaign.verification import StateCheck
from rig.contract.clocks import Clock
from rig.contract.findings import Finding
from rig.contract.results import Verdict
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.faults import CrashState, EntryFlag, Logs, WriteLog
from rig.faults.log.log import HEADER, MAGIC, SUPERBLOCK, VERSION
from rig.filesystems.ext import DISK_MIB
from rig.machines.pool import Clones
from rig.planning import cuts, matrix
from rig.planning.matrix import Profile
from rig.recordings.archive import RECORDING_BYTES, Recording
from rig.recordings.timeline import Timeline

Recorder = Callable[[Scenario], Recording]
SHORT = WorkloadSpec(transaction_count=8, think_ms=200, rest_ms=6000)


def scenario_of(settings_name: str, *, fault: str = "powercut", seed: int = 1) -> Scenario:
    """A scenario of the matrix with eight transactions."""
    (scenario,) = matrix.select([f"sqlite-ext4-{settings_name}_{fault}"])
    return replace(scenario, workload=SHORT, seed=seed)


@dataclass(frozen=True)
class Entry:
    """One entry of a log, as bytes."""

    sector: int
    flags: int
    payload: bytes = b""
    text: bytes = b""

    @property
    def is_batch(self) -> bool:
        return not self.flags & (EntryFlag.FLUSH | EntryFlag.FUA | EntryFlag.MARK | EntryFlag.DISCARD)


@contextmanager
def open_recording(recording: Recording) -> Iterator[tuple[Path, WriteLog]]:
    with recording.open() as logs:
        yield logs.first.path, logs.first


def entries_of(log: WriteLog) -> list[Entry]:
    texts = {mark.entry_index: mark.text.encode() for mark in log.marks}
    return [
        Entry(int(log.offset_bytes[i]) // 512, int(log.flags[i]), bytes(log.payload(i)), texts.get(i, b""))
        for i in range(log.entry_count)
    ]


def write_log(path: Path, entries: Sequence[Entry]) -> Path:
    """Write a log of 512-byte sectors, as long as a clone's recording disk."""
    with path.open("wb") as file:
        file.write(SUPERBLOCK.pack(MAGIC, VERSION, len(entries), 512).ljust(512, b"\0"))
        for entry in entries:
            header = HEADER.pack(entry.sector, len(entry.payload) // 512, entry.flags, len(entry.text))
            file.write((header + entry.text).ljust(512, b"\0") + entry.payload)
        file.truncate(RECORDING_BYTES)
    return path


def without_flush(entries: Sequence[Entry], flush: int) -> list[Entry]:
    """Return what the kernel would have logged without this FLUSH: its writes wait for the next one."""
    begin = 1 + max(i for i in range(flush) if entries[i].flags & EntryFlag.FLUSH)
    following = next(i for i in range(flush + 1, len(entries)) if entries[i].flags & EntryFlag.FLUSH)
    both = [*entries[begin:flush], *entries[flush + 1 : following]]
    at_once, batch = [e for e in both if not e.is_batch], [e for e in both if e.is_batch]
    return [*entries[:begin], *at_once, *batch, *entries[following:]]


def content_sha256(log: WriteLog, state: CrashState) -> str:
    """Digest a crash state's disk by the host's own replay: the base from entry 0, what landed, what was damaged."""
    device = log.replay(state.base_end, DISK_MIB << 20)
    for entry, skip, length in state.pieces(log).tolist():
        begin = int(log.offset_bytes[entry]) + skip
        device[begin : begin + length] = np.frombuffer(log.payload(entry)[skip : skip + length], dtype=np.uint8)
    for extent in state.damage_extents(log):
        data = np.frombuffer(extent.data(log), dtype=np.uint8)
        device[extent.device_offset_bytes : extent.device_offset_bytes + extent.length_bytes] = data
    return hashlib.sha256(device.tobytes()).hexdigest()


def check(
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    clocks: Sequence[Clock | None] = (),
    *,
    reference: Clones | None = None,
) -> Generator[Finding, None, None]:
    """Check states of a log, each under the clock of the same rank, if there are any."""
    cuts = list(zip(states, clocks or [None] * len(states), strict=True))
    return StateCheck(scenario, log).findings(cuts, machines, reference)


def findings(
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    also: Callable[[int], None] = lambda _: None,
) -> list[Finding]:
    """Verify states and return one finding for each, in order."""
    found: list[Finding] = []
    for finding in check(scenario, machines, log, states):
        found.append(finding)
        also(len(found) - 1)
    assert len(states) == len(found)
    return found


def answers(
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    digests_of: Collection[str] = (),
    *,
    must_open: bool = True,
) -> list[dict[str, Any]]:
    """Return the guest's own answers, from one clone, with digests of the contents of the states named."""
    found = []
    with machines.clone(recording=log.path) as machine:
        session = VerifierSession(machine, scenario, log)
        machine.receive(READY_LIMIT_S)
        for state in states:
            machine.send(session.request(state) | {"digest": state.id in digests_of, "open": must_open})
            found.append(machine.receive(STATE_LIMIT_S))
    assert [state.id for state in states] == [answer["state"] for answer in found]
    return found


def kinds(found: Iterable[Finding]) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.recovered) for finding in found]


def verdicts(scenario: Scenario, recording: Recording, verifier: Clones, profile: Profile) -> list[Verdict]:
    """Cut the power at instants all over a recording, and judge as a campaign does."""
    with open_recording(recording) as (_, log):
        timeline = Timeline(log.marks)
        groups = cuts.by_content(cuts.cuts(scenario, profile, Logs(log), timeline).cuts)
        found = findings(scenario, verifier, log, [group[0].state for group in groups])
        pairs = zip(groups, found, strict=True)
        return [verdict(cut, finding, timeline) for group, finding in pairs for cut in group]


def two_agree(first: list[bytes], again: Callable[[], list[bytes]]) -> bool:
    """Whether two of up to nine recordings of a scenario are equal, bit for bit.

    On a busy host with QEMU 7.2, recordings may differ by a few virtual nanoseconds (`rig.machines.machine.start`),
    so the rig too records until two are equal.
    """
    found = [first]
    for _ in range(8):
        if (other := again()) in found:
            return True
        found.append(other)
    return False
