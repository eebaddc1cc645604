"""System calls that Python's library does not have (x86-64), for the launcher of machines; each raises OSError."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

# linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_SYS_PIVOT_ROOT, _SYS_CAPSET = 155, 126
_CAPABILITY_VERSION = 0x20080522


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers, bytes and ctypes values are its arguments."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)))


def mount_at(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Make a mount, bind one, or change one; the words are as in mount(2)."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def make_root(folder: str) -> None:
    """Make a mount point the root directory of this process's mount namespace, and detach the old root."""
    os.chdir(folder)
    system_call(_SYS_PIVOT_ROOT, b".", b".")
    _check(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)))
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up all capabilities."""
    system_call(_SYS_CAPSET, (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)())


def die_with_parent(signal: int) -> None:
    """Have the kernel send this process a signal when its parent ends. A change of user id takes it back."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def become_dumpable() -> None:
    """Own the files of /proc/self again, which a change of user id has given to root."""
    _prctl(_PR_SET_DUMPABLE, 1)


def forgo_privileges() -> None:
    """Get no more privileges by executing a program, neither this process nor its children."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_system_calls(program: bytes) -> None:
    """Apply a BPF program (seccomp(2)) to each system call from now on."""
    code = ctypes.create_string_buffer(program, len(program))

    class SockFprog(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    whole = SockFprog(len(program) // 8, ctypes.addressof(code))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(whole))


def _prctl(option: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(ctypes.c_int(option), *words))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
