"""The call stack of a thread that waits in a system call, as function names, by libdw of elfutils.

A thread that waits for its supervisor is not stopped, and its registers cannot be read. So it is interrupted: it leaves
the call, is stopped with all registers, and makes the call again once it goes on. Frames come from the binaries' own
tables (`.eh_frame`), which x86-64 demands; names from their symbols, if they were not stripped of them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import groupby
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
# waitpid also waits for a thread that is not our child.
_WALL = 0x40000000
_FRAMES_MAX = 48
_GO_ON, _ENOUGH = 0, 1
_Frame = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Callbacks(ctypes.Structure):
    """How libdw finds the files of a process: `Dwfl_Callbacks` of elfutils/libdwfl.h."""

    _fields_ = (
        ("find_elf", ctypes.c_void_p),
        ("find_debuginfo", ctypes.c_void_p),
        ("section_address", ctypes.c_void_p),
        ("debuginfo_path", ctypes.c_void_p),
    )


def interrupted_stack(thread: int) -> tuple[str, ...] | None:
    """Interrupt a thread in its system call and return its stack, the innermost function first.

    None if it was not interrupted, because it cannot be traced or has ended. Otherwise it makes its call again.
    """
    try:
        _ptrace(_SEIZE, thread)
    except OSError:
        return None
    try:
        _ptrace(_INTERRUPT, thread)
        _, status = os.waitpid(thread, _WALL)
        return _names(_process_of(thread), thread) if os.WIFSTOPPED(status) else ()
    finally:
        with suppress(ProcessLookupError):  # killed meanwhile
            _ptrace(_DETACH, thread)


def _names(process: int, thread: int) -> tuple[str, ...]:
    """Return the functions of a stopped thread, without those that call themselves; empty if libdw knows none."""
    try:
        libdw = _libdw()
    except OSError:  # the image has no libdw
        return ()
    names: list[str] = []
    with _dwfl_of(libdw, process) as dwfl:
        if not dwfl:
            return ()

        def on_frame(frame: int, _: int) -> int:
            counter, is_activation = ctypes.c_uint64(), ctypes.c_bool()
            if not libdw.dwfl_frame_pc(frame, ctypes.byref(counter), ctypes.byref(is_activation)):
                return _ENOUGH
            # A return address is after the call, which may be the last instruction of its function.
            names.append(_name(libdw, dwfl, counter.value - (0 if is_activation.value else 1)))
            return _GO_ON if len(names) < _FRAMES_MAX else _ENOUGH

        libdw.dwfl_getthread_frames(dwfl, thread, _Frame(on_frame), None)
    return tuple(name for name, _ in groupby(names))


def _name(libdw: ctypes.CDLL, dwfl: int, address: int) -> str:
    """Return a function, or the file and the place in it if the file does not name its functions."""
    module = libdw.dwfl_addrmodule(dwfl, address)
    if not module:
        return hex(address)
    if name := libdw.dwfl_module_addrname(module, address):
        return _demangle(name)
    begin = ctypes.c_uint64()
    path = libdw.dwfl_module_info(module, None, ctypes.byref(begin), None, None, None, None, None) or b"?"
    return f"{os.path.basename(path.decode(errors='replace'))}+{address - begin.value:#x}"


def _demangle(name: bytes) -> str:
    """Return a function of C++ as its programmers write it, without its parameters; any other as it is."""
    text = name.decode(errors="replace")
    if not text.startswith("_Z"):
        return text
    try:
        demangle = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
    except OSError:  # no program of the image is in C++
        return text
    demangle.restype = ctypes.c_void_p
    if not (memory := demangle(name, None, None, None)):
        return text
    text = ctypes.string_at(memory).decode(errors="replace")
    _libc.free(ctypes.c_void_p(memory))
    return text.partition("(")[0] or text


@contextmanager
def _dwfl_of(libdw: ctypes.CDLL, process: int) -> Iterator[int | None]:
    """Give libdw's view of a process whose thread is stopped; None if it has no view of it."""
    callbacks = _Callbacks(
        ctypes.cast(libdw.dwfl_linux_proc_find_elf, ctypes.c_void_p).value,
        ctypes.cast(libdw.dwfl_standard_find_debuginfo, ctypes.c_void_p).value,
    )
    dwfl = libdw.dwfl_begin(ctypes.byref(callbacks))
    try:
        is_known = dwfl and not libdw.dwfl_linux_proc_report(dwfl, process)
        libdw.dwfl_report_end(dwfl, None, None)
        yield dwfl if is_known and not libdw.dwfl_linux_proc_attach(dwfl, process, True) else None  # noqa: FBT003 - C
    finally:
        libdw.dwfl_end(dwfl)


@cache
def _libdw() -> ctypes.CDLL:
    libdw = ctypes.CDLL("libdw.so.1")
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    signatures = {
        "dwfl_begin": (pointer, (pointer,)),
        "dwfl_end": (None, (pointer,)),
        "dwfl_linux_proc_report": (ctypes.c_int, (pointer, ctypes.c_int)),
        "dwfl_report_end": (ctypes.c_int, (pointer, pointer, pointer)),
        "dwfl_linux_proc_attach": (ctypes.c_int, (pointer, ctypes.c_int, ctypes.c_bool)),
        "dwfl_getthread_frames": (ctypes.c_int, (pointer, ctypes.c_int, _Frame, pointer)),
        "dwfl_frame_pc": (ctypes.c_bool, (pointer, pointer, pointer)),
        "dwfl_addrmodule": (pointer, (pointer, number)),
        "dwfl_module_addrname": (ctypes.c_char_p, (pointer, number)),
        "dwfl_module_info": (ctypes.c_char_p, (pointer, *(pointer,) * 7)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(libdw, name)
        function.restype, function.argtypes = result, arguments
    return libdw


def _process_of(thread: int) -> int:
    status = Path(f"/proc/{thread}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Tgid:")).split()[1])


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace request {request:#x} of thread {thread}: {os.strerror(number)}")
