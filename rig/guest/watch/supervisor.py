"""Supervise a workload: it stops before every call that writes, truncates or syncs a file, until we decide on the call.

The workload runs in a fork of this process under a seccomp filter. It reports its position itself (`tell`), through a
system call that does not exist, so that it waits while we take note. For each call the supervisor knows the file's
role, the name of a sync (both by the engine's own rules, `rig.engines.syncs`), the transaction and the phase.

Only one of the two processes runs at a time, so on one vCPU under icount every run is the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from rig.engines import load
from rig.engines.syncs import Call, CallName, CallNamer, Syncs, syncs_of
from rig.guest.site import Site
from rig.guest.watch import seccomp
from rig.guest.watch.forks import Ending, Fork, Send
from rig.guest.watch.patience import OF_A_WORKLOAD, Limits
from rig.guest.watch.seccomp import Listener, Stop

# No system call of x86-64 has this number: without a supervisor the call fails with ENOSYS and does nothing.
_TELL = 0x5249
_PATH_BYTES_MAX = 4096
_AT_FDCWD = -100
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
# The marks that begin a phase.
_PHASE_OF = {
    "setup": WorkloadPhase.ACKED,
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

    def moved(self, place: WorkloadPosition) -> Action:
        """Take note of the workload's new place; here `PRETEND` has no effect."""

    def called(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Decide on a call; `kind` is the name of a sync, and empty for other calls."""


def tell(mark: str) -> None:
    """Report the workload's place by a mark such as `begin-17`; return when the supervisor has taken note."""
    word, _, number = mark.partition("-")
    if word in _PHASE_OF:
        _libc.syscall(_TELL, _PHASES.index(_PHASE_OF[word]), int(number or 0))


def supervise(
    site: Site,
    body: Callable[[Send], None],
    watch: Watch,
    *,
    writes: bool = True,
    limits: Limits = OF_A_WORKLOAD,
) -> Ending:
    """Run `body` in a supervised fork until it ends; `body` receives a function that sends a message as JSON.

    Without `writes` the fork does not stop before writes. That is faster, but syncs that are named after what was
    written lose their names. A fork that the watch killed has ended well.
    """
    # Load the driver once, here, and not in every fork.
    load(site.orders.engine_module).loaded(site.orders.shim)
    numbers = {number for number, (name, _, _) in _SUPERVISED.items() if writes or name is not CallName.WRITE}
    ours, theirs = socket.socketpair()

    def listened(send: Send) -> None:
        listener = seccomp.install(numbers | {_TELL})
        socket.send_fds(theirs, [b"\0"], [listener])
        os.close(listener)
        body(send)

    with ours, theirs:
        fork = Fork(listened, limits)
        theirs.close()
        listener = _listener(ours, fork.pid)
        try:
            was_killed = listener is not None and _Supervision(site, watch).run(listener, fork)
        except BaseException:
            os.kill(fork.pid, signal.SIGKILL)
            raise
        finally:
            ending = fork.wait()
            if listener:
                listener.close()
    return replace(ending, exit_code=0, grief=None) if was_killed else ending


def _listener(ours: socket.socket, pid: int) -> Listener | None:
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return Listener(descriptors[0], pid) if descriptors else None


class _Supervision:
    """One run: the place of the workload and the names of its calls."""

    def __init__(self, site: Site, watch: Watch) -> None:
        self._syncs: Syncs | None = syncs_of(load(site.orders.engine_module))
        self._namer: CallNamer | None = self._syncs.Namer(site.orders.settings) if self._syncs else None
        self._directory = site.engine_directory
        self._watch = watch
        self._place = WorkloadPosition(WorkloadPhase.SETUP)

    def run(self, listener: Listener, fork: Fork) -> bool:
        """Decide on each stop until the workload has ended or exceeds its limits; return whether it was killed here."""
        was_killed = False
        for stop in listener.stops(fork.look, fork.limits.look_s):
            action = self._moved(stop) if stop.number == _TELL else self._called(stop)
            if action is Action.KILL:
                # The stopped process may be a server that the workload runs; it dies with the workload.
                for pid in {stop.pid, fork.pid}:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                was_killed = True
            elif action is Action.PRETEND or stop.number == _TELL:
                listener.pretend(stop)
            else:
                listener.carry_out(stop)
        return was_killed

    def _moved(self, stop: Stop) -> Action:
        self._place = WorkloadPosition(_PHASES[stop.arguments[0]], stop.arguments[1])
        if self._namer and self._place.phase is WorkloadPhase.COMMIT:
            self._namer.begin()
        return self._watch.moved(self._place)

    def _called(self, stop: Stop) -> Action:
        call = self._call(stop)
        return self._watch.called(self._place, call, self._namer.name(call) if self._namer else "")

    def _call(self, stop: Stop) -> Call:
        name, path_of, offset_at = _SUPERVISED[stop.number]
        if stop.number == _MSYNC and not stop.arguments[2] & _MS_SYNC:
            name = CallName.WRITEBACK
        path = path_of(stop)
        role = self._syncs.role(path, self._directory) if self._syncs else ""
        offset = -1 if offset_at is None else stop.arguments[offset_at]
        return Call(name, role, offset)


def _of_descriptor(stop: Stop) -> str:
    return _linked(stop, f"fd/{_signed(stop.arguments[0])}")


def _of_path(stop: Stop) -> str:
    return os.path.normpath(os.path.join(_linked(stop, "cwd"), _text(stop, stop.arguments[0])))


def _of_path_at(stop: Stop) -> str:
    descriptor = _signed(stop.arguments[0])
    folder = _linked(stop, "cwd" if descriptor == _AT_FDCWD else f"fd/{descriptor}")
    return os.path.normpath(os.path.join(folder, _text(stop, stop.arguments[1])))


def _of_mapping(stop: Stop) -> str:
    """Return the file that is mapped at an address."""
    for first, last, path in _mappings(stop.pid):
        if first <= stop.arguments[0] < last:
            return path
    return ""


def _mappings(pid: int) -> Iterator[tuple[int, int, str]]:
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            span, _, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(address, 16) for address in span.split("-"))
            yield first, last, path[0] if path else ""


def _linked(stop: Stop, name: str) -> str:
    try:
        return os.readlink(f"/proc/{stop.pid}/{name}")
    except FileNotFoundError:  # a descriptor that is not open: the call will fail with EBADF
        return ""


def _text(stop: Stop, address: int) -> str:
    with open(f"/proc/{stop.pid}/mem", "rb", buffering=0) as memory:
        # Read one page at a time: the string may end just before unmapped memory.
        found = b""
        while len(found) < _PATH_BYTES_MAX and b"\0" not in found:
            here = address + len(found)
            memory.seek(here)
            try:
                found += memory.read(4096 - here % 4096)
            except OSError:  # the call will fail with EFAULT
                break
    return os.fsdecode(found.partition(b"\0")[0])


def _signed(word: int) -> int:
    value: int = struct.unpack("<i", struct.pack("<I", word & 0xFFFFFFFF))[0]
    return value


_PathOf = Callable[[Stop], str]
# Number on x86-64 -> what the call does, how to find its file, and which argument is an offset.
_SUPERVISED: Mapping[int, tuple[CallName, _PathOf, int | None]] = {
    74: (CallName.SYNC, _of_descriptor, None),  # fsync
    75: (CallName.SYNC, _of_descriptor, None),  # fdatasync
    _MSYNC: (CallName.SYNC, _of_mapping, None),  # msync
    162: (CallName.SYNC, lambda _: "", None),  # sync
    306: (CallName.SYNC, _of_descriptor, None),  # syncfs
    277: (CallName.WRITEBACK, _of_descriptor, None),  # sync_file_range
    1: (CallName.WRITE, _of_descriptor, None),  # write
    18: (CallName.WRITE, _of_descriptor, 3),  # pwrite64
    20: (CallName.WRITE, _of_descriptor, None),  # writev
    296: (CallName.WRITE, _of_descriptor, 3),  # pwritev
    328: (CallName.WRITE, _of_descriptor, 3),  # pwritev2
    76: (CallName.TRUNCATE, _of_path, 1),  # truncate
    77: (CallName.TRUNCATE, _of_descriptor, 1),  # ftruncate
    87: (CallName.UNLINK, _of_path, None),  # unlink
    263: (CallName.UNLINK, _of_path_at, None),  # unlinkat
    82: (CallName.RENAME, _of_path, None),  # rename
    264: (CallName.RENAME, _of_path_at, None),  # renameat
    316: (CallName.RENAME, _of_path_at, None),  # renameat2
}
