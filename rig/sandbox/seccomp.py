"""The system calls that a machine may make, and the BPF program that refuses all others (x86-64).

The numbers are as in asm/unistd_64.h. The lists are measured, see docs/explanation/security.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_OF_BOTH = {
    # Memory, threads, time and signals of its own.
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "mremap": 25, "madvise": 28, "mincore": 27, "membarrier": 324,
    "mbind": 237, "get_mempolicy": 239, "set_mempolicy": 238, "clone": 56, "exit": 60, "exit_group": 231,
    "execve": 59, "futex": 202, "futex_waitv": 449, "set_tid_address": 218, "set_robust_list": 273,
    "get_robust_list": 274, "rseq": 334, "sched_yield": 24, "sched_getaffinity": 204, "getpid": 39, "getppid": 110,
    "gettid": 186, "getuid": 102, "geteuid": 107, "getgid": 104, "getegid": 108, "uname": 63, "sysinfo": 99,
    "prctl": 157, "arch_prctl": 158, "prlimit64": 302, "getrlimit": 97, "getrandom": 318, "seccomp": 317,
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "rt_sigtimedwait": 128, "sigaltstack": 131,
    "tgkill": 234, "restart_syscall": 219, "nanosleep": 35, "clock_nanosleep": 230, "clock_gettime": 228,
    "clock_getres": 229, "gettimeofday": 96, "time": 201, "timer_create": 222, "timer_settime": 223,
    "timer_gettime": 224, "timer_getoverrun": 225, "timer_delete": 226,
    # Files that it has or that Landlock lets it open.
    "openat": 257, "read": 0, "write": 1, "close": 3, "fstat": 5, "newfstatat": 262, "statx": 332, "access": 21,
    "faccessat": 269, "faccessat2": 439, "readlink": 89, "readlinkat": 267, "getcwd": 79, "pread64": 17,
    "pwrite64": 18, "readv": 19, "writev": 20, "preadv": 295, "pwritev": 296, "lseek": 8, "fcntl": 72, "ioctl": 16,
    "dup": 32, "dup2": 33, "dup3": 292, "pipe2": 293, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "fallocate": 285,
    "fadvise64": 221, "statfs": 137, "fstatfs": 138, "memfd_create": 319, "poll": 7, "ppoll": 271, "select": 23,
    "pselect6": 270, "eventfd2": 290, "signalfd4": 289, "timerfd_create": 283, "timerfd_settime": 286,
    "epoll_create": 213, "epoll_create1": 291, "epoll_ctl": 233, "epoll_wait": 232, "epoll_pwait": 281,
    # Sockets that it was given.
    "sendmsg": 46, "recvmsg": 47, "sendto": 44, "recvfrom": 45, "shutdown": 48, "getsockname": 51, "getpeername": 52,
    "getsockopt": 55, "setsockopt": 54,
}  # fmt: skip
# The kernel traces the processes of its guest, which are its children, and passes interrupts through socket pairs. It
# ends if the answer to a mkdir is that it may not.
_OF_USER_MODE = {
    "ptrace": 101, "kill": 62, "wait4": 61, "setsid": 112, "rt_sigsuspend": 130, "socketpair": 53, "mkdir": 83,
}  # fmt: skip
# By what a machine is.
SYSTEM_CALLS: Mapping[str, Mapping[str, int]] = {"emulator": _OF_BOTH, "user mode": {**_OF_BOTH, **_OF_USER_MODE}}

# linux/bpf_common.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Offsets in struct seccomp_data of linux/seccomp.h
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X86_64 = 0xC000003E
# System calls of the x32 ABI have this bit.
_X32 = 0x40000000
_EPERM, _ENOSYS = 1, 38
_CLONE, _CLONE3 = 56, 435
# All flags of clone(2) that make namespaces.
_NEW_NAMESPACES = 0x7E020080


def program(name: str) -> bytes:
    """Return the BPF program for one of `SYSTEM_CALLS`."""
    allowed = sorted(SYSTEM_CALLS[name].values())
    return b"".join(_instructions(allowed))


def _instructions(allowed: Sequence[int]) -> list[bytes]:
    # Flags of clone3 lie in memory, which a filter cannot read. The C library then uses clone.
    refused = _REFUSE | _EPERM
    parts = [
        [_instruction(_LOAD, _AT_ARCHITECTURE)],
        _if(_EQUAL, _X86_64, [], [_instruction(_RETURN, _KILL)]),
        [_instruction(_LOAD, _AT_NUMBER)],
        _if(_AT_LEAST, _X32, [_instruction(_RETURN, refused)]),
        *(_if(_EQUAL, number, [_instruction(_RETURN, _ALLOW)]) for number in allowed if number != _CLONE),
        _if(_EQUAL, _CLONE3, [_instruction(_RETURN, _REFUSE | _ENOSYS)]),
        _if(_EQUAL, _CLONE, [], [_instruction(_RETURN, refused)]),
        [_instruction(_LOAD, _AT_FIRST_ARGUMENT)],
        _if(_ANY_BIT, _NEW_NAMESPACES, [_instruction(_RETURN, refused)]),
        [_instruction(_RETURN, _ALLOW if _CLONE in allowed else refused)],
    ]
    return [instruction for part in parts for instruction in part]


def _if(test: int, value: int, then: list[bytes], otherwise: list[bytes] | None = None) -> list[bytes]:
    """Return a test with what it decides; one of the two is empty."""
    if otherwise is None:
        return [_instruction(test, value, 0, len(then)), *then]
    return [_instruction(test, value, len(otherwise), 0), *otherwise]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
