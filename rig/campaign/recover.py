"""Make recordings of recoveries: open the database on crash states while recording, and keep what was written.

If the fault says so, the recovered database works on, and its later life is recorded.

`rig.planning.recoverycuts` chooses the crash states; `rig.recordings.recoveries` keeps the recordings.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from rig.campaign.session import Recovered, VerifierSession
from rig.contract.errors import RecordingError, VmError
from rig.contract.findings import FindingKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Logs, WriteLog
from rig.faults.choosing.selection import evenly_spaced
from rig.machines.pool import Clones
from rig.planning import recoverycuts
from rig.planning.matrix import Profile
from rig.recordings.recoveries import Recoveries, Recovery, self_contained


def record(  # noqa: PLR0917 - all types differ; mypy catches a swap
    scenario: Scenario,
    profile: Profile,
    machines: Clones,
    logs: Logs,
    kept: Recoveries,
    stopped: threading.Event | None = None,
) -> None:
    """Record a scenario's recoveries, and recoveries from cuts during them; raise RecordingError if none succeeds."""
    candidates = recoverycuts.candidates(scenario, profile, logs)
    recoveries = recover(scenario, machines, logs.first, candidates, stopped)
    addresses = [state.id for state in candidates]
    firsts = keep_recoveries(
        scenario, kept, addresses, candidates, recoveries, logs.first, recoverycuts.first_count(profile)
    )
    recoverycuts.require_some(scenario, len(candidates), firsts)
    deeper: list[Recovery] = []
    for first in recoverycuts.deeper(profile, firsts):
        with kept.open(first.state, first.lives) as opened:
            chosen = recoverycuts.amid(scenario, profile, opened, first)
            later = replace(scenario, lives=first.lives)
            recoveries = recover(later, machines, opened.log, chosen, stopped)
            addresses = [str(first.address.then(state.id)) for state in chosen]
            deeper += keep_recoveries(later, kept, addresses, chosen, recoveries, opened.log, len(chosen))
    kept.write_index([*firsts, *deeper])


def recover(
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    stopped: threading.Event | None = None,
) -> list[Recovered | None]:
    """Record the recovery of each state; return None in its place if the machine was lost.

    The states must be sorted so that the base only moves forward. The log must be the only one of its file, and the
    scenario must have the lives before it.
    """
    recoveries: list[Recovered | None] = []
    while len(recoveries) < len(states):
        try:
            with machines.clone(recording=log.path) as machine:
                for recovered in VerifierSession(machine, scenario, log).recoveries(states[len(recoveries) :]):
                    recoveries.append(recovered)  # noqa: PERF402 - an error must not lose the earlier ones
        except (VmError, TimeoutError):
            if stopped and stopped.is_set():
                raise
            recoveries.append(None)
    return recoveries


def keep_recoveries(  # noqa: PLR0917 - types or names tell them apart
    scenario: Scenario,
    kept: Recoveries,
    addresses: Sequence[str],
    states: Sequence[CrashState],
    recoveries: Sequence[Recovered | None],
    log: WriteLog,
    count: int,
) -> list[Recovery]:
    """Keep up to `count` recoveries: first those that wrote to files, then those that wrote most. Return those kept.

    If all of these databases are damaged, one more is kept that came back whole, if any did: a control has to lose
    transactions, and nothing is counted as lost by a damaged one.

    Also return every later life in which the engine failed after its recovery; there is no recording of it.

    A recovery is left out if a replay of its log does not give the disk. Raise RecordingError if most are: then nothing
    follows from the others either.
    """
    void_count = 0
    telling: list[tuple[int, Recovery]] = []
    others: list[tuple[int, Recovery]] = []
    failures: list[Recovery] = []
    sound: set[str] = set()
    for address, state, recovered in zip(addresses, states, recoveries, strict=True):
        # A disk that does not mount was not recovered, and the engine is not to blame.
        if recovered is None or recovered.finding.kind is FindingKind.FILESYSTEM_DAMAGE:
            continue
        whole = self_contained(address, state, log, recovered.log, kept.device_bytes)
        try:
            kept.save(address, whole, recovered.digest, recovered.trace)
        except RecordingError:
            # What was in flight at the same time may have landed in another order than its log has.
            void_count += 1
            if void_count > max(1, len(recoveries) // 2):
                raise
            continue
        with kept.open(address) as opened:
            recovery = recoverycuts.recovery_of(scenario, opened, recovered.finding, recovered.places)
            if recovery and not recovery.failure:
                if recovered.finding.kind is FindingKind.PREFIX:
                    sound.add(recovery.state)
                written, in_files = recoverycuts.writes(opened, recovery)
                (telling if in_files.any() or recovery.lives else others).append((len(written), recovery))
                continue
        kept.remove(address)
        failures += [recovery] if recovery else []
    chosen = evenly_spaced([recovery for _, recovery in telling], count)
    others.sort(key=lambda row: -row[0])
    chosen = [*chosen, *(recovery for _, recovery in others[: count - len(chosen)])]
    if sound.isdisjoint(recovery.state for recovery in chosen):
        chosen += [recovery for _, recovery in (*telling, *others) if recovery.state in sound][:1]
    for _, recovery in (*telling, *others):
        if recovery not in chosen:
            kept.remove(recovery.state)
    return [*chosen, *failures]
