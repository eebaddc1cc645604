"""What keeps an engine or a file system from being measured under a fault, in words for the user."""

from __future__ import annotations

from rig.contract.faultspecs import SPECS, FaultSpec
from rig.contract.injections import ERRORS, MENDING, Injection
from rig.engines import Engine, ServingDriver
from rig.filesystems import FileSystem, Mirrored, Served, TwoDisks


def why_not(engine: Engine, filesystem: FileSystem, fault: str) -> str:
    """Return what keeps an engine or a file system from being measured under a fault; empty if nothing does."""
    spec = SPECS[fault]
    if reason := engine.spec.immune.get(fault) or _of_engine(engine, spec.injection):
        return f"{engine.name} cannot be measured under {fault}: {reason}"
    if reason := _of_filesystem(filesystem, spec):
        return f"{filesystem.word} cannot be measured under {fault}: {reason}"
    return ""


def _of_engine(engine: Engine, injection: Injection) -> str:
    if injection in ERRORS and not engine.endures_errors:
        return "its driver cannot tell disk errors from others"
    if engine.own_driver and injection not in {Injection.NONE, Injection.KILLCUT, *ERRORS}:
        return "the rig does not make its transactions itself"
    if injection is Injection.KILLCUT and isinstance(engine.driver_module(), ServingDriver):
        return "it is a server, and the rig kills one process"
    return ""


def _of_filesystem(filesystem: FileSystem, spec: FaultSpec) -> str:
    if spec.later_count and isinstance(filesystem, Served):
        return "after a cut the rig mounts its server's disk alone"
    if spec.cuts_recovery and not spec.later_count and not filesystem.maps_files:
        return "it does not tell where on the disk its files are"
    if spec.injection is Injection.SERVERCRASH and not isinstance(filesystem, Served):
        return "it has no server"
    if spec.injection in MENDING and isinstance(filesystem, Served):
        return "the rig mends no server"
    if spec.injection is Injection.TWODISK and not isinstance(filesystem, TwoDisks):
        return "it cannot lie on two disks"
    if spec.injection is not Injection.TWODISK and isinstance(filesystem, Mirrored):
        return "it lies on two disks; take twodisk"
    return ""
