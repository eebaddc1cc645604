"""The faults there are: in which arm each is judged, what is cut, and what is done while the workload runs.

An honest disk loses only what was not flushed, so a loss belongs to the database or its file system. A dishonest disk
does what no engine stands, so only detection is judged. In the error arm requests fail while the workload runs; in
the clock arm time goes wrong. The last two are recorded under an injection, and then cut like any other recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rig.contract.injections import CLOCKS, ERRORS, Injection


class Arm(StrEnum):
    """What a result of a fault may be held against."""

    HONEST = "honest disk"
    DISHONEST = "dishonest disk"
    ERROR = "errors"
    CLOCK = "clock"


@dataclass(frozen=True)
class FaultSpec:
    """One fault of a test id."""

    name: str
    arm: Arm
    # The module of `faults` that plans the crash states; empty if all verdicts come from the recording itself. A word,
    # so that asking for the ids of the scenarios imports no numpy.
    model: str
    # What is done while the workload runs.
    injection: Injection = Injection.NONE
    # Whether no engine's documentation promises anything under it, though the disk is honest.
    is_unpromised: bool = False
    # Whether the recovery from each cut is itself recorded and cut, see `rig.planning.recoverycuts`.
    cuts_recovery: bool = False
    # Whether it holds the rig itself to account: a few states tell enough, and no number of them is asked for.
    is_cross_check: bool = False


_SPECS = (
    FaultSpec("powercut", Arm.HONEST, "powercut"),
    FaultSpec("torn", Arm.HONEST, "torn"),
    FaultSpec("shorn", Arm.HONEST, "shorn", is_unpromised=True),
    FaultSpec("recoverycut", Arm.HONEST, "powercut", cuts_recovery=True),
    FaultSpec("oscrash", Arm.HONEST, "oscrash"),
    FaultSpec("plp", Arm.HONEST, "plp"),
    # Nothing is cut: the process dies, the page cache lives.
    FaultSpec("processkill", Arm.HONEST, "", Injection.KILL),
    # The rig's own cross-check: the power really goes, in the guest, and the rest of the disk is held against the log.
    FaultSpec("livecut-drop", Arm.HONEST, "", Injection.LIVECUT_DROP, is_cross_check=True),
    FaultSpec("livecut-cache", Arm.HONEST, "", Injection.LIVECUT_CACHE, is_cross_check=True),
    FaultSpec("discard", Arm.HONEST, "discard"),
    # The file system's journal has a disk of its own.
    FaultSpec("twodisk", Arm.HONEST, "twodisk", Injection.TWODISK),
    FaultSpec("lyingflush", Arm.DISHONEST, "lyingflush"),
    FaultSpec("bitflip", Arm.DISHONEST, "bitflip"),
    FaultSpec("misdirected", Arm.DISHONEST, "misdirected"),
    FaultSpec("lostrange", Arm.DISHONEST, "lostrange"),
    FaultSpec("bitrot", Arm.DISHONEST, "bitrot"),
    *(FaultSpec(str(injection), Arm.CLOCK, "powercut", injection) for injection in sorted(CLOCKS)),
    # Requests fail while the workload runs, as `rig.guest.programs.injections` plans it; then the power is cut.
    *(FaultSpec(str(injection), Arm.ERROR, "powercut", injection) for injection in sorted(ERRORS)),
)
SPECS = {spec.name: spec for spec in sorted(_SPECS, key=lambda spec: spec.name)}
FAULTS = tuple(SPECS)


def of(arm: Arm) -> tuple[str, ...]:
    """Return the names of the faults of an arm, sorted."""
    return tuple(name for name, spec in SPECS.items() if spec.arm is arm)


# Faults that vendors document, and what is looked at most closely: the others share its exposure or its mechanism.
MAIN_FAULTS = ("oscrash", "powercut", "processkill", "torn")
HONEST_FAULTS = of(Arm.HONEST)
# Under these a disk loses what it was not told to keep.
FORGETTING_FAULTS = tuple(name for name in HONEST_FAULTS if SPECS[name].model)
DISHONEST_FAULTS = of(Arm.DISHONEST)
CLOCK_FAULTS = of(Arm.CLOCK)
ERROR_FAULTS = of(Arm.ERROR)
