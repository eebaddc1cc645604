"""What power loss does to a disk: the write log, its epochs, the crash states it allows, one module for each fault.

Pure Python and numpy, independent of virtual machines and databases. `faults.models` says how to add a fault.
"""

from __future__ import annotations

from rig.faults.addresses import Address, StateIdError, parse_state
from rig.faults.content import ContentIndex
from rig.faults.damage import Holds
from rig.faults.epoch import Epoch
from rig.faults.epochs import epochs
from rig.faults.extents import Extent, base_extents
from rig.faults.log import EntryFlag, LogError, Mark, WriteLog
from rig.faults.logs import LogFile, Logs
from rig.faults.models import Fault, plan
from rig.faults.paircoverage import tried
from rig.faults.powercut import everything_unflushed_lost
from rig.faults.selection import Plan
from rig.faults.state import CrashState, Draw, Tear
from rig.faults.twodisk import JointState, parse_joint
from rig.faults.twologs import DiskLetter, TwoLogs

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
    "parse_joint",
    "parse_state",
    "plan",
    "tried",
]
