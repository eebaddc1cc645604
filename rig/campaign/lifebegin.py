"""Where a later life of a database began, to record it once more: with its calls told, or with further syncs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rig.campaign.recover import recover
from rig.campaign.session import Recovered
from rig.contract.errors import RecordingError
from rig.contract.scenario import Scenario
from rig.faults import Address, CrashState, WriteLog
from rig.filesystems import filesystem_named
from rig.machines.pool import Clones
from rig.recordings.recoveries import OpenRecovery, Recoveries, self_contained
from rig.recordings.timeline import Timeline


@dataclass(frozen=True)
class LifeBegin:
    """The crash state with which a life began, and the log that it was cut from."""

    address: Address
    state: CrashState
    log: WriteLog

    def again(self, scenario: Scenario, machines: Clones) -> Recovered:
        """Record the life once more; the scenario has all lives up to this one, and perhaps another shim.

        Raise RecordingError if the machine was lost.
        """
        earlier = replace(scenario, lives=scenario.lives[:-1])
        (recovered,) = recover(earlier, machines, self.log, [self.state])
        if recovered is None:
            raise RecordingError(f"the life from {self.address} could not be recorded again: its machine was lost")
        return recovered

    @contextmanager
    def opened_again(self, scenario: Scenario, machines: Clones, folder: Path) -> Iterator[OpenRecovery]:
        """Record the life once more into an empty folder, and open it for the length of a block.

        Raise RecordingError if the machine was lost, the log is void, or the database did not work on.
        """
        recovered = self.again(scenario, machines)
        kept = Recoveries(folder, filesystem_named(scenario.filesystem).disk_mib_min, scenario.device.atomic_bytes)
        text = str(self.address)
        whole = self_contained(text, self.state, self.log, recovered.log, kept.device_bytes)
        kept.save(text, whole, recovered.digest, recovered.trace)
        with kept.open(text, scenario.lives) as opened:
            yield opened


def life_of(opened: OpenRecovery) -> Timeline:
    """Return when things happened in a later life; raise RecordingError if it has none."""
    if opened.life is None:
        raise RecordingError(f"the recovery from {opened.state} is no later life")
    return opened.life
