"""Make recordings of recoveries: open the database on crash states while recording, and keep what was written.

`rig.planning.recoverycuts` chooses the crash states; `rig.recordings.recoveries` keeps the recordings.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

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
    found = recover(scenario, machines, logs.first, candidates, stopped)
    addresses = [state.id for state in candidates]
    firsts = _save(kept, addresses, candidates, found, logs.first, recoverycuts.first_count(profile))
    if not firsts:
        raise RecordingError(f"none of {len(candidates)} recoveries of {scenario.id} could be recorded")
    deeper: list[Recovery] = []
    for first in recoverycuts.deeper(profile, firsts):
        with kept.opened(first.state) as opened:
            chosen = recoverycuts.amid(scenario, profile, opened, first)
            found = recover(scenario, machines, opened.log, chosen, stopped)
            addresses = [str(first.address.then(state.id)) for state in chosen]
            deeper += _save(kept, addresses, chosen, found, opened.log, len(chosen))
    kept.write_index([*firsts, *deeper])


def recover(
    scenario: Scenario,
    machines: Clones,
    log: WriteLog,
    states: Sequence[CrashState],
    stopped: threading.Event | None = None,
) -> list[Recovered | None]:
    """Record the recovery of each state; return None in its place if the machine was lost.

    The states must be sorted so that the base only moves forward. The log must be the only one of its file.
    """
    found: list[Recovered | None] = []
    while len(found) < len(states):
        try:
            with machines.clone(recording=log.path) as machine:
                for one in VerifierSession(machine, scenario, log).recoveries(states[len(found) :]):
                    found.append(one)  # noqa: PERF402 - an error must not lose the earlier ones
        except (VmError, TimeoutError):
            if stopped and stopped.is_set():
                raise
            found.append(None)
    return found


def _save(  # noqa: PLR0917 - types or names tell them apart
    kept: Recoveries,
    addresses: Sequence[str],
    states: Sequence[CrashState],
    found: Sequence[Recovered | None],
    log: WriteLog,
    count: int,
) -> list[Recovery]:
    """Keep up to `count` recoveries: first those that wrote to files, then those that wrote most. Return those kept."""
    telling: list[tuple[int, Recovery]] = []
    others: list[tuple[int, Recovery]] = []
    for address, state, one in zip(addresses, states, found, strict=True):
        # A disk that does not mount was not recovered, and the engine is not to blame.
        if one is None or one.finding.kind is FindingKind.FILESYSTEM_DAMAGE:
            continue
        whole = self_contained(address, state, log, one.log, kept.device_bytes)
        kept.save(address, whole, one.digest, one.trace)
        recovery = Recovery(address, one.places)
        with kept.opened(address) as opened:
            written, in_files = recoverycuts.writes(opened, recovery)
        (telling if in_files.any() else others).append((len(written), recovery))
    chosen = evenly_spaced([recovery for _, recovery in telling], count)
    others.sort(key=lambda row: -row[0])
    chosen = [*chosen, *(recovery for _, recovery in others[: count - len(chosen)])]
    for _, recovery in (*telling, *others):
        if recovery not in chosen:
            kept.remove(recovery.state)
    return chosen
