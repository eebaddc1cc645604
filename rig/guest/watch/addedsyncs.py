"""Run a workload in which the supervisor adds syncs, as if the program had made them: the opposite of leaving one out.

A shim such as `add-wal+directory` names what is synced: a file by its role or by its path below the mount point, and
the directory. What was written to such a file is synced before the workload's next call on another file, and before the
commit is acknowledged; in `add-~journal` also before a write that does not begin where the last one ended. So is the
directory after a file in it was made, removed or renamed. A file that is mapped into memory is synced before each
acknowledgement. `add-*` does all of this for all files. `add-` does nothing, under the same supervision. So does `none`
for workloads whose pages are written back early (`rig.guest.watch.earlywriteback`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rig.contract.orders import ADD_EVERYTHING, ADD_PREFIX, ADD_SEPARATOR, ADD_WITHIN, DIRECTORY
from rig.engines.syncs import Call, CallName
from rig.guest.programs.own import limits_of
from rig.guest.site import Site
from rig.guest.watch import earlywriteback
from rig.guest.watch.calls import body_of
from rig.guest.watch.forks import EngineFailed
from rig.guest.watch.stopped import files_in_memory
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise

_WRITES = {CallName.WRITE, CallName.TRUNCATE, CallName.ALLOCATE}
_OF_NAMES = {CallName.CREATE, CallName.UNLINK, CallName.RENAME}


@dataclass
class SyncAdder:
    """Syncs files by role or by path below a directory, and the directory itself, if they are `wanted`."""

    directory: str
    wanted: frozenset[str]
    # What has to be synced at the next opportunity, and how many syncs were made.
    due: dict[str, None] = field(default_factory=dict)
    count: int = 0
    # Where the last write ended.
    _end_bytes: int = -1
    # Threads that have made calls.
    _threads: set[int] = field(default_factory=set)

    def on_move(self, place: WorkloadPosition) -> Action:
        """Sync what is due once a commit has returned; it is acknowledged after that."""
        if place.phase is WorkloadPhase.COMMITTED:
            self.due |= dict.fromkeys(self._wanted_in_memory())
            self._sync()
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:  # noqa: ARG002 - the protocol passes it
        """Sync what is due unless a call only goes on writing to it, and note what the call makes due."""
        self._threads.add(call.thread)
        path = call.path
        is_below = path.startswith(f"{self.directory}/")
        names = {call.role, os.path.relpath(path, self.directory)} if is_below else set()
        within = {ADD_EVERYTHING, *(f"{ADD_WITHIN}{name}" for name in names)} if is_below else set()
        goes_on = call.offset_bytes == self._end_bytes or not self.wanted & within
        if not (call.name in _WRITES and path in self.due and goes_on):
            self._sync()
        if place.phase is WorkloadPhase.SETUP or not is_below:
            return Action.CARRY_OUT
        if call.name in _WRITES and self.wanted & (names | within):
            self.due[path] = None
            self._end_bytes = call.offset_bytes + call.length_bytes
        if call.name in _OF_NAMES and self.wanted & {DIRECTORY, ADD_EVERYTHING}:
            self.due |= dict.fromkeys(os.path.dirname(changed) for changed in (path, call.new_path) if changed)
        return Action.CARRY_OUT

    def _wanted_in_memory(self) -> list[str]:
        """Return the files to sync that are mapped into memory: no call tells that they were written to."""
        mapped = set().union(*map(files_in_memory, self._threads)) if self.wanted else set()
        return sorted(
            path for path in mapped
            if path.startswith(f"{self.directory}/")
            and self.wanted & {ADD_EVERYTHING, os.path.relpath(path, self.directory)}
        )  # fmt: skip

    def _sync(self) -> None:
        due, self.due = self.due, {}
        for path in due:
            with suppress(FileNotFoundError):  # removed since it was written to
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                self.count += 1


def run(site: Site) -> dict[str, Any]:
    """Carry out the workload with the syncs named in the orders; raise RuntimeError if there was nothing to sync."""
    shim = site.orders.shim
    named = shim.removeprefix(ADD_PREFIX) if shim.startswith(ADD_PREFIX) else ""
    adder = SyncAdder(site.directory, frozenset(filter(None, named.split(ADD_SEPARATOR))))
    watch = earlywriteback.beneath(site, adder)
    # Reading the details of each call takes time.
    has_details = shim.startswith(ADD_PREFIX)
    ending = supervise(site, body_of(site), watch, details=has_details, limits=limits_of(site))
    ending.require("the workload")
    (facts,) = ending.messages
    if adder.wanted and not adder.count:
        raise RuntimeError(f"the shim {shim} added nothing: no transaction writes to a file of that name")
    if isinstance(watch, earlywriteback.EarlyWriteback) and not watch.count:
        raise EngineFailed(
            "it changes files by no call that is seen, so no page was written back early (io_uring, AIO)"
        )
    return {**facts, "added": adder.count}
