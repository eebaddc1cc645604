"""The list of faults: the class of each, what is cut, and what is injected while the workload runs.

An honest disk loses only what was not flushed, so a loss is due to the database or its file system. A dishonest disk
does what no engine survives, so only detection is judged. Under errors requests fail while the workload runs; under
clock faults time goes wrong. The last two are recorded under an injection, and then cut like any other recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rig.contract.injections import CLOCKS, ERRORS, LIVE_CUTS, Injection


class FaultClass(StrEnum):
    """The kinds of fault, by what an engine can be blamed for."""

    HONEST = "honest disk"
    DISHONEST = "dishonest disk"
    ERROR = "errors"
    CLOCK = "clock"


@dataclass(frozen=True)
class FaultSpec:
    """One fault of a test id."""

    name: str
    fault_class: FaultClass
    # The module of `faults` that plans the crash states; empty if all verdicts come from the recording itself. A word
    # and not the module, so that listing scenario ids does not import numpy.
    model: str
    # What is injected while the workload runs.
    injection: Injection = Injection.NONE
    # Whether no engine's documentation promises anything under this fault, although the disk is honest.
    is_unpromised: bool = False
    # Whether the recovery from each cut is itself recorded and cut, see `rig.planning.recoverycuts`.
    cuts_recovery: bool = False
    # How many transactions the recovered database carries out before it is cut again; 0 if only its recovery is cut.
    later_count: int = 0
    # Whether the fault checks the rig itself: a few states are enough, so no exposure is required.
    is_cross_check: bool = False
    # Whether the whole cache of the device is safe (capacitors may run out), and whether the page cache is safe.
    keeps_device_cache: bool = False
    keeps_page_cache: bool = False


_SPECS = (
    FaultSpec("powercut", FaultClass.HONEST, "powercut"),
    FaultSpec("torn", FaultClass.HONEST, "torn"),
    FaultSpec("shorn", FaultClass.HONEST, "shorn", is_unpromised=True),
    FaultSpec("recoverycut", FaultClass.HONEST, "powercut", cuts_recovery=True),
    FaultSpec("secondcut", FaultClass.HONEST, "powercut", cuts_recovery=True, later_count=6),
    # The process is killed and started again; what it has shown since must survive the cut.
    FaultSpec("killcut", FaultClass.HONEST, "powercut", Injection.KILLCUT),
    FaultSpec("oscrash", FaultClass.HONEST, "oscrash", keeps_device_cache=True),
    FaultSpec("plp", FaultClass.HONEST, "plp"),
    # Nothing is cut: the process dies, the page cache survives.
    FaultSpec("processkill", FaultClass.HONEST, "", Injection.KILL, keeps_device_cache=True, keeps_page_cache=True),
    # The rig's own cross-check: the guest's disk really loses power, and what is left of it is compared with the log.
    FaultSpec(
        "livecut-drop", FaultClass.HONEST, "", Injection.LIVECUT_DROP, is_cross_check=True, keeps_device_cache=True
    ),
    FaultSpec("livecut-cache", FaultClass.HONEST, "", Injection.LIVECUT_CACHE, is_cross_check=True),
    # The same for the disk of a server, which comes back; the programs on its clients go on.
    FaultSpec("servercrash", FaultClass.HONEST, "", Injection.SERVERCRASH),
    FaultSpec("discard", FaultClass.HONEST, "discard"),
    # The file system lies on two disks.
    FaultSpec("twodisk", FaultClass.HONEST, "twodisk", Injection.TWODISK),
    FaultSpec("lyingflush", FaultClass.DISHONEST, "lyingflush"),
    FaultSpec("bitflip", FaultClass.DISHONEST, "bitflip"),
    FaultSpec("misdirected", FaultClass.DISHONEST, "misdirected"),
    FaultSpec("lostrange", FaultClass.DISHONEST, "lostrange"),
    FaultSpec("bitrot", FaultClass.DISHONEST, "bitrot"),
    *(FaultSpec(str(injection), FaultClass.CLOCK, "powercut", injection) for injection in sorted(CLOCKS)),
    # Requests fail while the workload runs, as planned in `rig.guest.programs.injections`; then the power is cut.
    *(FaultSpec(str(injection), FaultClass.ERROR, "powercut", injection) for injection in sorted(ERRORS)),
)
SPECS = {spec.name: spec for spec in sorted(_SPECS, key=lambda spec: spec.name)}
FAULTS = tuple(SPECS)


def is_live_cut(fault: str) -> bool:
    """Return whether the workload meets its cuts while it runs, which ends it early; False for an unknown fault."""
    return fault in SPECS and SPECS[fault].injection in LIVE_CUTS


def of(fault_class: FaultClass) -> tuple[str, ...]:
    """Return the names of the faults of a class, sorted."""
    return tuple(name for name, spec in SPECS.items() if spec.fault_class is fault_class)


# Faults that vendors document, checked most closely: the others share their mechanism or get a part of the exposure.
MAIN_FAULTS = ("oscrash", "powercut", "processkill", "torn")
# Other faults and mutants need only part of the exposure. A surviving mutant says nothing about the engine.
_SIDE_PART = 5
_MUTANT_PART = 8
# Most states of one recovery leave the same files, and each recovery costs a machine.
_RECOVERY_PART = 16
# The workload that only makes a database is over after a few transactions; each of them shows 16 contents or more.
# However short a workload is, at least the second number is wanted.
_CONTENTS_OF_A_TRANSACTION, _CONTENTS_MIN = 12, 60
HONEST_FAULTS = of(FaultClass.HONEST)
# Faults under which an honest disk loses what was not flushed.
FORGETTING_FAULTS = tuple(name for name in HONEST_FAULTS if SPECS[name].model)
# Faults under which the machine goes down, and faults under which its disk also loses what is in its cache.
CRASH_FAULTS = tuple(name for name, spec in SPECS.items() if not spec.keeps_page_cache)
CACHE_LOSING_FAULTS = tuple(name for name, spec in SPECS.items() if not spec.keeps_device_cache)
DISHONEST_FAULTS = of(FaultClass.DISHONEST)
CLOCK_FAULTS = of(FaultClass.CLOCK)
ERROR_FAULTS = of(FaultClass.ERROR)


def exposure_wanted(exposure_min: int, fault: str, transaction_count: int, *, is_mutant: bool) -> int:
    """Return how many distinct file contents a zero under this fault has to rest on, with this many transactions."""
    spec = SPECS[fault]
    is_recovery = spec.cuts_recovery and not spec.later_count
    part = 1 if fault in MAIN_FAULTS else _RECOVERY_PART if is_recovery else _SIDE_PART
    wanted = -(-exposure_min // (_MUTANT_PART if is_mutant else part))
    return min(wanted, max(_CONTENTS_MIN, _CONTENTS_OF_A_TRANSACTION * transaction_count))
