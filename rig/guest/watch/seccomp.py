"""Seccomp user notification through ctypes: a process stops at chosen system calls until another decides on them.

Call numbers are for x86-64; the kernel's include/uapi/linux/seccomp.h defines the layouts. This works for any program,
even a static one: nothing is preloaded, the program only inherits the filter.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_RECEIVE = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
_SEND = 0xC0182101  # _IOWR('!', 1, struct seccomp_notif_resp)
_ADD_DESCRIPTOR = 0x40182103  # _IOW('!', 3, struct seccomp_notif_addfd)
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_DESCRIPTOR = struct.Struct("<QIIII")
_FLAG_CONTINUE, _FLAG_ADD_AND_SEND = 1, 2
_INSTRUCTION = struct.Struct("<HBBI")
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_JUMP_IF_ANY = 0x45  # BPF_JMP|BPF_JSET|BPF_K
# In struct seccomp_data; the arguments have eight bytes each, the lower ones first.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT, _ARGUMENT_BYTES = 0, 4, 16, 8
_X86_64 = 0xC000003E
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Stop:
    """A process stopped before a system call."""

    id: int
    pid: int
    number: int
    arguments: tuple[int, ...]


class Listener:
    """The supervisor's end of a process's filter; takes ownership of the descriptor."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self._descriptor = descriptor
        # From Linux 5.9 to 6.10 the listener hangs up only when the process has been waited for.
        self._process = os.pidfd_open(pid)

    def stops(self, is_over: Callable[[], object], look_s: float) -> Iterator[Stop]:
        """Yield every stop until the process has ended; each must be answered, or the process killed.

        `is_over` is called every `look_s` seconds; once it returns a true value, no stop follows.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._process, select.POLLIN)
        look_again_s = time.monotonic() + look_s
        while True:
            events = dict(poll.poll(look_s * 1e3))
            if time.monotonic() >= look_again_s:
                if is_over():
                    return
                look_again_s = time.monotonic() + look_s
            if events.get(self._descriptor, 0) & select.POLLIN:
                buffer = bytearray(_NOTIFICATION.size)
                try:
                    fcntl.ioctl(self._descriptor, _RECEIVE, buffer)
                except FileNotFoundError:  # killed in the meantime
                    continue
                id_, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
                yield Stop(id_, pid, number, tuple(arguments))
            elif self._process in events:
                return

    def carry_out(self, stop: Stop) -> None:
        """Let the call happen."""
        self._answer(stop, _FLAG_CONTINUE)

    def pretend(self, stop: Stop) -> None:
        """Let the call return 0 without happening."""
        self._answer(stop, 0)

    def refuse(self, stop: Stop, error: int) -> None:
        """Let the call fail with an error number without happening."""
        self._answer(stop, 0, -error)

    def give(self, stop: Stop, descriptor: int, *, closes_on_exec: bool) -> None:
        """Let the call return a copy of an open descriptor of this process, without happening."""
        flags = os.O_CLOEXEC if closes_on_exec else 0
        with contextlib.suppress(FileNotFoundError):  # killed meanwhile
            added = _DESCRIPTOR.pack(stop.id, _FLAG_ADD_AND_SEND, descriptor, 0, flags)
            fcntl.ioctl(self._descriptor, _ADD_DESCRIPTOR, added)

    def close(self) -> None:
        """Close the filter's listener; calls that would stop from now on fail with ENOSYS."""
        os.close(self._descriptor)
        os.close(self._process)

    def _answer(self, stop: Stop, flags: int, error: int = 0) -> None:
        with contextlib.suppress(FileNotFoundError):  # killed meanwhile
            fcntl.ioctl(self._descriptor, _SEND, _ANSWER.pack(stop.id, 0, error, flags))


def install(numbers: Collection[int], flagged: Mapping[int, tuple[int, int]] | None = None) -> int:
    """Put this process and its children under a permanent filter for these calls; return the listener's descriptor.

    `flagged` are calls that stop only if an argument, by its index, has any bit of a mask.
    """
    numbers = sorted(numbers)
    tests = sorted((flagged or {}).items())
    # Without this the kernel demands root for a filter, because a filter on a setuid program could be a way to root.
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    program = [_INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE_AT)]
    # The last two instructions allow and notify.
    left = 3 * len(tests)
    program.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, len(numbers) + left + 1, _X86_64))
    program.append(_INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_AT))
    program += [
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, len(numbers) - index + left, 0, number)
        for index, number in enumerate(numbers)
    ]
    for index, (number, (argument, mask)) in enumerate(tests, 1):
        left = 3 * (len(tests) - index)
        program.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 2, number))
        program.append(_INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS_AT + _ARGUMENT_BYTES * argument))
        program.append(_INSTRUCTION.pack(_JUMP_IF_ANY, left + 1, left, mask))
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, action) for action in (_ALLOW, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("<H6xQ", len(program), ctypes.addressof(code))
    return _check(_libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, header))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")
    return result
