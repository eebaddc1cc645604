"""The system calls of a workload that write, make, remove or sync files, as a supervisor saw them, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SeenCall:
    """One call, seen just before it was carried out. Paths are relative to the mount point, which is `.`."""

    # A word of `rig.engines.syncs.CallName`.
    name: str
    # Empty for a call that concerns the whole file system.
    path: str
    # Where a renamed file goes; empty for any other call.
    new_path: str
    # Where a write or a sync of a part begins, or the new length of a truncated file; -1 if unknown.
    offset_bytes: int
    # How much is written, or synced of mapped memory; -1 for any other call, or where it is unknown.
    length_bytes: int
    # The role of the file and the name of a sync, in the engine's words; may be empty.
    role: str
    kind: str
    # Which thread made it, and the name of its program.
    thread: int
    program: str
    # The phase of the workload (`rig.guest.watch.supervisor.WorkloadPhase`) and its transaction.
    phase: str
    number: int
    # By the machine's clock, which runs on while the workload is stopped.
    time_ns: int
    # The functions that led to it, the innermost first, if they were asked for and are known.
    stack: tuple[str, ...] = ()
