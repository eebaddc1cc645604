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
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_RECEIVE = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
_SEND = 0xC0182101  # _IOWR('!', 1, struct seccomp_notif_resp)
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_FLAG_CONTINUE = 1
_INSTRUCTION = struct.Struct("<HBBI")
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data
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

    def close(self) -> None:
        """Close the filter's listener; calls that would stop from now on fail with ENOSYS."""
        os.close(self._descriptor)
        os.close(self._process)

    def _answer(self, stop: Stop, flags: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # killed meanwhile
            fcntl.ioctl(self._descriptor, _SEND, _ANSWER.pack(stop.id, 0, 0, flags))


def install(numbers: Collection[int]) -> int:
    """Put this process and its children under a permanent filter for these calls; return the listener's descriptor."""
    numbers = sorted(numbers)
    # Without this the kernel demands root for a filter, because a filter on a setuid program could be a way to root.
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    program = [_INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE_AT)]
    program.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, len(numbers) + 1, _X86_64))
    program.append(_INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_AT))
    program += [
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)
    ]
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, action) for action in (_ALLOW, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("<H6xQ", len(program), ctypes.addressof(code))
    return _check(_libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, header))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")
    return result
