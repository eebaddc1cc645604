"""What power loss does to a disk: the write log, its epochs, the crash states it allows, one module for each fault.

Pure Python and numpy, independent of virtual machines and databases. `rig.faults.models.registry` says how to add a
fault.
"""

from __future__ import annotations

from rig.faults.choosing.paircoverage import pair_coverage
from rig.faults.choosing.selection import Plan
from rig.faults.log.epoch import Epoch
from rig.faults.log.epochs import epochs
from rig.faults.log.extents import Extent, base_extents
from rig.faults.log.log import EntryFlag, LogError, Mark, WriteLog
from rig.faults.models.registry import Fault, plan
from rig.faults.states.addresses import Address, StateIdError, parse_state
from rig.faults.states.content import ContentIndex
from rig.faults.states.damage import Holds
from rig.faults.states.jointstate import JointState, parse_joint
from rig.faults.states.logs import LogFile, Logs
from rig.faults.states.state import CrashState, Draw, Tear, everything_unflushed_lost
from rig.faults.states.twologs import DiskLetter, TwoLogs

__all__ = [
    "Address",
    "ContentIndex",
    "CrashState",
    "DiskLetter",
    "Draw",
    "EntryFlag",
    "Epoch",
    "Extent",
    "Fault",
    "Holds",
    "JointState",
    "LogError",
    "LogFile",
    "Logs",
    "Mark",
    "Plan",
    "StateIdError",
    "Tear",
    "TwoLogs",
    "WriteLog",
    "base_extents",
    "epochs",
    "everything_unflushed_lost",
    "pair_coverage",
    "parse_joint",
    "parse_state",
    "plan",
]
