"""A process of the user's own program: it writes below one directory only, and nothing that it started outlives it.

Its parent, this process, reads its lines and learns how it ended. Time limits are set elsewhere
(`rig.guest.watch.patience`): at a limit this process is killed, and the program dies with it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from rig.contract.findings import FindingKind
from rig.engines.own import NoResult
from rig.guest.watch.forks import FIRST_BYTES, LAST_BYTES, kill_children, manner, quotation
from rig.guest.watch.patience import children

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# include/uapi/linux/sched.h and mount.h; the system call has this number on x86-64.
_CLONE_NEWNS, _MS_BIND, _MS_PRIVATE = 0x20000, 1 << 12, 1 << 18
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1
# struct mount_attr: what to set, what to clear, the propagation, no user namespace.
_MOUNT_ATTR = struct.Struct("<QQQQ")
_PRINTED_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_EXIT_NOT_STARTED = 127
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A process that has been started; see `rig.engines.own.Process`."""

    def __init__(self, arguments: Sequence[str], directory: str, *, is_confined: bool = True) -> None:
        """Start a program in a directory; a confined program may write nowhere else.

        Before its path there may be settings of its environment.
        """
        # Processes that it leaves behind become our children instead of children of process 1.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._oom_kill_count = oom_kill_count()
        # Standard input, output and error: the child's end first.
        ends = [os.pipe(), os.pipe()[::-1], os.pipe()[::-1]]
        self._pid = os.fork()
        if self._pid == 0:
            _become(arguments, directory, [theirs for theirs, _ in ends], is_confined=is_confined)
        for theirs, _ in ends:
            os.close(theirs)
        self._input, self._output, self._errors = (ours for _, ours in ends)
        self._end = os.pidfd_open(self._pid)
        self._poll = select.poll()
        self._open = {self._output, self._errors, self._end}
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)
        self._printed, self._first_words, self._last_words = b"", b"", b""
        self._printed_count = self._said_count = self._left_count = 0

    def line(self) -> str | None:
        """Return the next line of its standard output, None after the last; raise NoResult if it prints without end."""
        while b"\n" not in self._printed and self._output in self._open:
            self._listen()
        line, newline, self._printed = self._printed.partition(b"\n")
        return line.decode(errors="replace") if line or newline else None

    def has_more(self) -> bool:
        """Return whether it has printed more than was read."""
        self._listen(0)
        return bool(self._printed)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        with suppress(BrokenPipeError):  # it has ended or does not listen; then its next line will be missing
            os.write(self._input, line.encode() + b"\n")

    def end(self) -> int:
        """Wait for its end; return its exit code, or raise NoResult if a signal killed it."""
        os.close(self._input)
        while self._end in self._open:
            self._listen()
        _, status = os.waitpid(self._pid, 0)
        self._left_count = _remaining()
        for descriptor in (self._output, self._errors, self._end):
            os.close(descriptor)
        exit_code = os.waitstatus_to_exitcode(status)
        if exit_code == -signal.SIGKILL and oom_kill_count() > self._oom_kill_count:
            words = f"took all the memory that there is, and was killed{self.last_words}"
            raise NoResult(FindingKind.OUT_OF_MEMORY, words)
        if exit_code < 0:
            raise NoResult(FindingKind.DIED, f"{manner(exit_code)}{self.last_words}")
        return exit_code

    @property
    def leftovers(self) -> str:
        """Return what it left behind when it ended, as words to put after its name; empty for nothing."""
        if not self._left_count:
            return ""
        processes = "a process" if self._left_count == 1 else f"{self._left_count} processes"
        return f"left {processes} behind when it ended"

    @property
    def last_words(self) -> str:
        """Return its first and last words on standard error, as the end of a sentence."""
        is_cut = self._said_count > FIRST_BYTES + LAST_BYTES
        return quotation(self._first_words, self._last_words, is_cut=is_cut)

    def _listen(self, limit_ms: int | None = None) -> None:
        """Wait until it prints something or ends, and take the output."""
        ready = {descriptor for descriptor, _ in self._poll.poll(limit_ms)}
        has_ended = self._end in ready
        for descriptor in ready - {self._end}:
            self._take(descriptor, is_last=False)
        if has_ended:
            # Processes that it has started may hold the pipes open, but nothing more is awaited from them.
            for descriptor in self._open - {self._end}:
                self._take(descriptor, is_last=True)
            self._drop(self._end)

    def _take(self, descriptor: int, *, is_last: bool) -> None:
        os.set_blocking(descriptor, False)
        with suppress(BlockingIOError):
            while chunk := os.read(descriptor, _READ_BYTES):
                self._keep(descriptor, chunk)
                if not is_last:
                    return
            is_last = True
        if is_last:
            self._drop(descriptor)

    def _keep(self, descriptor: int, chunk: bytes) -> None:
        if descriptor == self._errors:
            self._said_count += len(chunk)
            room = FIRST_BYTES - len(self._first_words)
            self._first_words += chunk[:room]
            self._last_words = (self._last_words + chunk[room:])[-LAST_BYTES:]
            # Repeat it on our standard error: if we are killed, our parent reports it.
            with suppress(OSError):
                os.write(2, chunk)
            return
        self._printed += chunk
        self._printed_count += len(chunk)
        if self._printed_count > _PRINTED_BYTES_MAX:
            os.kill(self._pid, signal.SIGKILL)
            words = f"printed more than {_PRINTED_BYTES_MAX >> 20} MiB, beginning with {_quote(self._printed)}"
            raise NoResult(FindingKind.CORRUPT, words)

    def _drop(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        self._poll.unregister(descriptor)


def oom_kill_count() -> int:
    """Return how many processes the kernel has killed because no memory was left."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counts["oom_kill"])


def _remaining() -> int:
    """Kill and reap the processes that a process has left to us; return how many were still alive."""
    count = 0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if pid == 0:
            count += len(children(os.getpid()))
            kill_children()


def _quote(printed: bytes) -> str:
    return repr(printed[:40].decode(errors="replace"))


def _become(arguments: Sequence[str], directory: str, ends: Sequence[int], *, is_confined: bool) -> NoReturn:
    """Become the program, in the fork."""
    try:
        os.setpgid(0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number, end in enumerate(ends):
            os.dup2(end, number)
        if is_confined:
            _confine(directory)
        os.chdir(directory)
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        settings = [word.partition("=") for word in takewhile(lambda word: "=" in word, arguments)]
        environment = {"PATH": "/usr/bin:/bin", "HOME": directory, "TMPDIR": directory, "LANG": "C.UTF-8"}
        environment.update({name: value for name, _, value in settings})
        words = list(arguments[len(settings) :])
        os.execve(words[0], words, environment)  # noqa: S606 - that is what it is for
    except OSError as error:
        os.write(2, f"it could not be started: {error}\n".encode())
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _confine(directory: str) -> None:
    """Make all mounts but the directory read-only for this process and all that it starts; this needs root."""
    _check(_libc.unshare(_CLONE_NEWNS))
    _set_mounts("/", _AT_RECURSIVE, propagation=_MS_PRIVATE)
    _check(_libc.mount(directory.encode(), directory.encode(), None, _MS_BIND, None))
    _set_mounts("/", _AT_RECURSIVE, to_set=_RDONLY)
    _set_mounts(directory, 0, to_clear=_RDONLY)


def _set_mounts(path: str, flags: int, *, to_set: int = 0, to_clear: int = 0, propagation: int = 0) -> None:
    attributes = _MOUNT_ATTR.pack(to_set, to_clear, propagation, 0)
    _check(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, len(attributes)))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"its directory could not be made the only one to write to: {os.strerror(number)}")
