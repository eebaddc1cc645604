"""Supervise a workload: it stops before every call that writes, truncates or syncs a file, until we decide on the call.

The workload runs in a fork of this process under a seccomp filter. It reports its position itself (`tell`), through a
system call that does not exist, so that it waits while we take note. For each call the supervisor knows the file's
role, the name of a sync (both by the engine's own rules, `rig.engines.syncs`), the transaction and the phase.

Only one of the two processes runs at a time, so on one vCPU under icount every run is the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from rig.engines import load
from rig.engines.syncs import Call, CallName, CallNamer, Syncs, syncs_of
from rig.guest.site import Site
from rig.guest.watch import seccomp, stopped
from rig.guest.watch.forks import Ending, Fork, Send
from rig.guest.watch.patience import OF_A_WORKLOAD, Limits, descendants
from rig.guest.watch.seccomp import Listener, Stop

# No system call of x86-64 has this number: without a supervisor the call fails with ENOSYS and does nothing.
_TELL = 0x5249
_libc = ctypes.CDLL(None, use_errno=True)


class WorkloadPhase(StrEnum):
    """The phases of a workload."""

    SETUP = "setup"
    COMMIT = "commit"
    # The commit has returned and is not acknowledged yet. Calls of other threads now belong to no transaction.
    COMMITTED = "committed"
    # Between transactions: `number` is the last one acknowledged.
    ACKED = "acked"
    END = "end"


_PHASES = tuple(WorkloadPhase)
# Without MS_SYNC this starts writeback, or does nothing at all.
_MSYNC, _MS_SYNC = 26, 4
# With this mode the size stays as it is.
_FALLOCATE, _KEEP_SIZE = 285, 1
# The marks that begin a phase.
_PHASE_OF = {
    "setup": WorkloadPhase.ACKED,
    "recovered": WorkloadPhase.ACKED,
    "begin": WorkloadPhase.COMMIT,
    "committed": WorkloadPhase.COMMITTED,
    "ack": WorkloadPhase.ACKED,
    "end": WorkloadPhase.END,
}


@dataclass(frozen=True)
class WorkloadPosition:
    """The phase a workload is in, and the number of the transaction."""

    phase: WorkloadPhase
    number: int = 0


class Action(StrEnum):
    """How a stopped workload continues."""

    CARRY_OUT = "carry out"
    PRETEND = "pretend"
    KILL = "kill"


class Watch(Protocol):
    """Decides on the calls of a workload."""

    def on_move(self, place: WorkloadPosition) -> Action:
        """Take note of the workload's new place; here `PRETEND` has no effect."""

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Decide on a call; `kind` is the name of a sync, and empty for other calls."""


def tell(mark: str) -> None:
    """Report the workload's place by a mark such as `begin-17`; return when the supervisor has taken note.

    The name of a step, as in `ack-17.compaction`, is no part of the place.
    """
    word, _, number = mark.partition(".")[0].partition("-")
    if word in _PHASE_OF:
        _libc.syscall(_TELL, _PHASES.index(_PHASE_OF[word]), int(number or 0))


def supervise(
    site: Site,
    body: Callable[[Send], None],
    watch: Watch,
    *,
    writes: bool = True,
    details: bool = False,
    unsynced: bool = False,
    interrupts: Callable[[WorkloadPosition, Call], bool] = lambda _place, _call: False,
    limits: Limits = OF_A_WORKLOAD,
) -> Ending:
    """Run `body` in a supervised fork until it ends; `body` receives a function that sends a message as JSON.

    Without `writes` the fork does not stop before writes. That is faster, but syncs that are named after what was
    written lose their names. With `details` the fork also stops before it makes a file, and each call has its length,
    its place in the file and its thread; reading them takes time. A fork that the watch killed has ended well. With
    `unsynced` files of the workload are opened without O_SYNC and O_DSYNC, whatever it asks for.

    `interrupts` may interrupt the thread of a call, and then says so: the thread makes the call again and stops again.
    """
    # Load the driver once, here, and not in every fork.
    load(site.orders.engine_module).driver_module(site.orders.shim)
    supervised = _STOPPING if details else _SUPERVISED
    numbers = {number for number, (name, _, _) in supervised.items() if writes or name is not CallName.WRITE}
    ours, theirs = socket.socketpair()

    def listen(send: Send) -> None:
        listener = seccomp.install(numbers | {_TELL}, _OPENING if unsynced else {})
        socket.send_fds(theirs, [b"\0"], [listener])
        os.close(listener)
        body(send)

    with ours, theirs:
        fork = Fork(listen, limits)
        theirs.close()
        listener = _listener(ours, fork.pid)
        try:
            was_killed = listener is not None and _Supervision(site, watch, interrupts, details=details).run(
                listener, fork
            )
        except BaseException:
            os.kill(fork.pid, signal.SIGKILL)
            raise
        finally:
            ending = fork.wait()
            if listener:
                listener.close()
    return replace(ending, exit_code=0, failure=None) if was_killed else ending


def _listener(ours: socket.socket, pid: int) -> Listener | None:
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return Listener(descriptors[0], pid) if descriptors else None


class _Supervision:
    """One run: the place of the workload and the names of its calls."""

    def __init__(
        self, site: Site, watch: Watch, interrupts: Callable[[WorkloadPosition, Call], bool], *, details: bool
    ) -> None:
        self._details = details
        self._syncs: Syncs | None = syncs_of(load(site.orders.engine_module))
        self._namer: CallNamer | None = self._syncs.Namer(site.orders.settings) if self._syncs else None
        self._directory = site.engine_directory
        self._is_own = site.is_own
        self._watch = watch
        self._interrupts = interrupts
        self._place = WorkloadPosition(WorkloadPhase.SETUP)

    def run(self, listener: Listener, fork: Fork) -> bool:
        """Decide on each stop until the workload has ended or exceeds its limits; return whether it was killed here."""
        was_killed = False
        for stop in listener.stops(fork.look, fork.limits.look_s):
            if stop.number in _OPENING and not self._details:
                self._open(stop, listener)
                continue
            action = self._on_move(stop) if stop.number == _TELL else self._on_call(stop)
            if action is None:
                continue
            if action is Action.KILL:
                # The stopped process may be a server that the workload runs; it dies with the workload. So do all
                # processes of a program, the starting ones first: one that lived on would do what comes next.
                for pid in (fork.pid, *(descendants(fork.pid) if self._is_own else ()), stop.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                was_killed = True
            elif action is Action.PRETEND or stop.number == _TELL:
                listener.pretend(stop)
            else:
                listener.carry_out(stop)
        return was_killed

    def _open(self, stop: Stop, listener: Listener) -> None:
        """Open a file of the workload in its place, so that writes to it are not synced."""
        path = _STOPPING[stop.number][1](stop)
        if not path.startswith(f"{self._directory}/"):
            listener.carry_out(stop)
            return
        argument, _ = _OPENING[stop.number]
        try:
            descriptor = stopped.open_without(os.O_SYNC, stop, path)
        except OSError as error:
            listener.refuse(stop, error.errno or errno.EIO)
            return
        listener.give(stop, descriptor, closes_on_exec=bool(stop.arguments[argument] & os.O_CLOEXEC))
        os.close(descriptor)

    def _on_move(self, stop: Stop) -> Action:
        self._place = WorkloadPosition(_PHASES[stop.arguments[0]], stop.arguments[1])
        if self._namer and self._place.phase is WorkloadPhase.COMMIT:
            self._namer.begin()
        return self._watch.on_move(self._place)

    def _on_call(self, stop: Stop) -> Action | None:
        """Decide on a call; None if it was interrupted and has no answer."""
        call = self._call(stop)
        if call.name is CallName.CREATE and not stopped.makes_file(stop, call.path):
            return Action.CARRY_OUT
        if self._interrupts(self._place, call):
            return None
        return self._watch.on_call(self._place, call, self._namer.name(call) if self._namer else "")

    def _call(self, stop: Stop) -> Call:
        name, path_of, offset_at = _STOPPING[stop.number]
        if stop.number == _MSYNC and not stop.arguments[2] & _MS_SYNC:
            name = CallName.WRITEBACK
        path = path_of(stop)
        role = self._syncs.role(path, self._directory) if self._syncs else ""
        offset = -1 if offset_at is None else stop.arguments[offset_at]
        if not self._details:
            return Call(name, role, offset, path, thread=stop.pid)
        if name is CallName.WRITE and offset < 0:
            offset = stopped.position(stop)
        if stop.number == _FALLOCATE and stop.arguments[1] & _KEEP_SIZE:
            offset = -1
        length = stopped.length_bytes(stop)
        if stop.number == _MSYNC:
            offset, length = stopped.mapped_part(stop)
        is_synced = name is CallName.WRITE and stopped.is_synced(stop)
        new_path, program = stopped.renamed_to(stop), stopped.program(stop)
        return Call(name, role, offset, path, length, new_path, stop.pid, program, is_synced)


_PathOf = Callable[[Stop], str]
# Number on x86-64 -> what the call does, how to find its file, and which argument is an offset.
_SUPERVISED: Mapping[int, tuple[CallName, _PathOf, int | None]] = {
    74: (CallName.SYNC, stopped.of_descriptor, None),  # fsync
    75: (CallName.SYNC, stopped.of_descriptor, None),  # fdatasync
    _MSYNC: (CallName.SYNC, stopped.of_mapping, None),  # msync
    162: (CallName.SYNC, lambda _: "", None),  # sync
    306: (CallName.SYNC, stopped.of_descriptor, None),  # syncfs
    277: (CallName.WRITEBACK, stopped.of_descriptor, None),  # sync_file_range
    1: (CallName.WRITE, stopped.of_descriptor, None),  # write
    18: (CallName.WRITE, stopped.of_descriptor, 3),  # pwrite64
    20: (CallName.WRITE, stopped.of_descriptor, None),  # writev
    296: (CallName.WRITE, stopped.of_descriptor, 3),  # pwritev
    328: (CallName.WRITE, stopped.of_descriptor, 3),  # pwritev2
    40: (CallName.WRITE, stopped.of_descriptor, None),  # sendfile
    275: (CallName.WRITE, stopped.of_descriptor, None),  # splice
    326: (CallName.WRITE, stopped.of_descriptor, None),  # copy_file_range
    76: (CallName.TRUNCATE, stopped.of_path, 1),  # truncate
    77: (CallName.TRUNCATE, stopped.of_descriptor, 1),  # ftruncate
    87: (CallName.UNLINK, stopped.of_path, None),  # unlink
    263: (CallName.UNLINK, stopped.of_path_at, None),  # unlinkat
    82: (CallName.RENAME, stopped.of_path, None),  # rename
    264: (CallName.RENAME, stopped.of_path_at, None),  # renameat
    316: (CallName.RENAME, stopped.of_path_at, None),  # renameat2
}
# What also stops if calls are reported in detail. Most of these only open a file that is there.
_CREATING: Mapping[int, tuple[CallName, _PathOf, int | None]] = {
    2: (CallName.CREATE, stopped.of_path, None),  # open
    85: (CallName.CREATE, stopped.of_path, None),  # creat
    257: (CallName.CREATE, stopped.of_path_at, None),  # openat
    83: (CallName.CREATE, stopped.of_path, None),  # mkdir
    258: (CallName.CREATE, stopped.of_path_at, None),  # mkdirat
    _FALLOCATE: (CallName.ALLOCATE, stopped.of_descriptor, 2),  # fallocate
}
_STOPPING = {**_SUPERVISED, **_CREATING}
# Calls that open a file with flags: the argument with them, and the one that makes a write a sync. O_SYNC has it too.
_OPENING: Mapping[int, tuple[int, int]] = {2: (1, os.O_DSYNC), 257: (2, os.O_DSYNC)}
