"""What power loss does to a disk: the write log, its epochs, the crash states it allows, one module for each fault.

Pure Python and numpy; knows nothing of virtual machines or databases.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from rig.faults import bitflip, bitrot, discard, lostrange, lyingflush, misdirected, oscrash, plp, powercut, shorn, torn
from rig.faults.content import ContentIndex
from rig.faults.epochs import Epoch, epochs
from rig.faults.extents import Extent, base_extents
from rig.faults.ids import StateIdError, parse_state
from rig.faults.log import EntryFlag, LogError, Mark, WriteLog
from rig.faults.powercut import everything_unflushed_lost
from rig.faults.selection import Plan
from rig.faults.state import CrashState, Draw, Tear
from rig.faults.twodisk import JointState, parse_joint
from rig.faults.twologs import Disk, TwoLogs

__all__ = [
    "ContentIndex",
    "CrashState",
    "Disk",
    "Draw",
    "EntryFlag",
    "Epoch",
    "Extent",
    "Fault",
    "JointState",
    "LogError",
    "Mark",
    "Plan",
    "StateIdError",
    "Tear",
    "TwoLogs",
    "WriteLog",
    "base_extents",
    "epochs",
    "everything_unflushed_lost",
    "parse_joint",
    "parse_state",
    "plan",
]


class Fault(StrEnum):
    """Fault models; the value is the spelling in test ids, on the command line and in results."""

    POWERCUT = "powercut"
    TORN = "torn"
    SHORN = "shorn"
    OSCRASH = "oscrash"
    PLP = "plp"
    DISCARD = "discard"
    LYINGFLUSH = "lyingflush"
    BITFLIP = "bitflip"
    MISDIRECTED = "misdirected"
    LOSTRANGE = "lostrange"
    BITROT = "bitrot"


class _Planner(Protocol):
    def __call__(
        self, log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int
    ) -> Plan: ...


_PLANNERS: dict[Fault, _Planner] = {
    Fault.POWERCUT: powercut.states,
    Fault.TORN: torn.states,
    Fault.SHORN: shorn.states,
    Fault.OSCRASH: oscrash.states,
    Fault.PLP: plp.states,
    Fault.DISCARD: discard.states,
    Fault.LYINGFLUSH: lyingflush.states,
    Fault.BITFLIP: bitflip.states,
    Fault.MISDIRECTED: misdirected.states,
    Fault.LOSTRANGE: lostrange.states,
    Fault.BITROT: bitrot.states,
}


def plan(
    fault: Fault, log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int
) -> Plan:
    """Plan up to `states_max` crash states of a fault, cut behind entry `first_entry`; deterministic under `seed`."""
    return _PLANNERS[fault](log, log_epochs, first_entry=first_entry, states_max=states_max, seed=seed)
