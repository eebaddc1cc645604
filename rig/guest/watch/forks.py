"""A fork of this process that runs one function and sends messages, for work that must be able to die without us.

Under emulation it takes a second to start another Python; a fork has everything loaded. If the engine fails, the ending
says how: the fork died, is stuck or took too much memory. What it prints is kept.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rig.contract.findings import FindingKind
from rig.guest.watch.patience import OF_A_WORKLOAD, Limits, Patience, children

Send = Callable[[Any], None]
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

# A processor that lacks an instruction, or native code that jumped astray.
_ILLEGAL = '; if it is built for a newer processor, the spec of the engine or the recipe says processor = "modern"'
_FAILURES = {FindingKind.STUCK: "got stuck", FindingKind.OUT_OF_MEMORY: "took too much memory"}
# What is kept of what a process prints: its first words, which name the error of a Go program, and its last ones, which
# name the exception of a Python program.
FIRST_BYTES, LAST_BYTES = 500, 1000
_PRINTED_BYTES_MAX = 1 << 24


class EngineFailed(RuntimeError):
    """The engine failed although nothing was wrong; a message of one line says how."""

    def __init__(self, words: str, kind: FindingKind = FindingKind.DIED) -> None:
        super().__init__(words)
        self.kind = kind


def manner(exit_code: int, doing: str = "") -> str:
    """Return how a process ended, by its exit code (the negative signal number if killed), and what it was doing."""
    while_doing = f" while {doing}" if doing else ""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}{while_doing}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal
        name = f"signal {-exit_code}"
    return f"died by {name}{while_doing}{_ILLEGAL if exit_code == -signal.SIGILL else ''}"


def quotation(first: bytes, last: bytes = b"", *, is_cut: bool = False) -> str:
    """Return the first and the last words of a process as the end of a sentence, in one line; empty for no words.

    If words between them were cut out, the last ones begin with a whole line.
    """
    if is_cut:
        last = b" ... " + (last.partition(b"\n")[2] or last)
    text = " ".join((first + last).replace(b"\0", b"").decode(errors="replace").split())
    return f"; it said: {text}" if text else ""


def last_words(printed: int, begin: int = 0) -> str:
    """Return the beginning and the end of what was printed to a file after its first `begin` bytes, as a quotation."""
    size = os.fstat(printed).st_size
    end = min(begin + FIRST_BYTES, size)
    tail = max(end, size - LAST_BYTES)
    first, last = (os.pread(printed, max(0, to - at), at) for at, to in ((begin, end), (tail, size)))
    return quotation(first, last, is_cut=tail > end)


def keep_little(printed: int) -> None:
    """Throw away what was printed to a file if it has grown too large."""
    if os.fstat(printed).st_size > _PRINTED_BYTES_MAX:
        # The process goes on printing at the same offset; the hole before it takes no memory.
        os.ftruncate(printed, 0)


def kill_children() -> None:
    """Kill and reap all children of this process, and the processes that they leave to it."""
    while left := children(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def first_to_be_killed() -> None:
    """Have the kernel kill this process before any other when no memory is left."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def print_to(descriptor: int) -> None:
    """Send all that this process prints to a file or a pipe."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(descriptor, number)
        # What Python prints must not wait in a buffer when the process dies. A stream that is replaced, as in a fork's
        # fork, must not close the descriptor: the next file to be opened would take its number.
        stream = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(stream, errors="replace", write_through=True))


@dataclass(frozen=True)
class Ending:
    """How a fork ended: its messages, its exit code (the negative signal number if killed), and why it failed."""

    messages: tuple[Any, ...]
    exit_code: int
    why: str
    # How the engine failed; None if the fork ended well or raised an exception.
    failure: FindingKind | None = None
    # Whether `why` is a whole sentence, because it comes from a fork of the fork.
    is_told: bool = False

    def require(self, what: str) -> None:
        """Raise EngineFailed if the engine failed, and RuntimeError if the fork raised an exception."""
        if self.failure:
            words = (
                self.why
                if self.is_told
                else f"{what} failed, and nothing was wrong with the disk: the engine {self.why}"
            )
            raise EngineFailed(words, self.failure)
        if self.exit_code:
            raise RuntimeError(f"{what} failed: {self.why}")


class Fork:
    """A fork that runs `body`, which receives a function that sends a message as JSON."""

    def __init__(self, body: Callable[[Send], None], limits: Limits = OF_A_WORKLOAD) -> None:
        self._messages = os.memfd_create("messages")
        self._printed = os.memfd_create("printed")
        # Keep the fork's garbage collector from touching, and so copying, the pages of existing objects.
        gc.freeze()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._play(body, parent)
        self.limits = limits
        self._patience = Patience(self.pid, limits)

    def look(self) -> tuple[FindingKind, str] | None:
        """Return the kind of finding, and words for it, if the fork exceeds a limit; otherwise None."""
        keep_little(self._printed)
        return self._patience.failure

    def wait(self) -> Ending:
        """Wait for the fork to end, or kill it if it exceeds its limits; return how it ended."""
        reason = self._watch()
        # Processes that it started must not keep files open.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        if os.getpid() == 1:
            # The processes that it had started, in any process group, are now our children.
            kill_children()
        with open(self._messages, "rb") as file:
            file.seek(0)
            lines = [json.loads(line) for line in file if line.endswith(b"\n")]
        words = last_words(self._printed)
        os.close(self._printed)
        exit_code = os.waitstatus_to_exitcode(status)
        messages = tuple(line["message"] for line in lines if "message" in line)
        if failure := next((line for line in lines if "failed" in line), None):
            kind = FindingKind(failure["failure"]) if failure.get("failure") else None
            return Ending(messages, exit_code, failure["failed"], kind, is_told=kind is not None)
        if reason:
            return Ending(messages, exit_code, f"{_FAILURES[reason[0]]}: {reason[1]}{words}", reason[0])
        return Ending(messages, exit_code, f"{manner(exit_code)}{words}", FindingKind.DIED if exit_code else None)

    def _watch(self) -> tuple[FindingKind, str] | None:
        """Wait until the fork has ended (return None) or exceeds a limit (return what `look` returns)."""
        end = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(end, select.POLLIN)
            while not poll.poll(self.limits.look_s * 1e3):
                if reason := self.look():
                    return reason
        finally:
            os.close(end)
        return None

    def _play(self, body: Callable[[Send], None], parent: int) -> NoReturn:
        def settle(send: Send) -> None:
            first_to_be_killed()
            os.setsid()
            # It must not outlive us either.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            print_to(self._printed)
            body(send)

        _end_after(settle, self._messages)


class ProgramFork(Fork):
    """A fork that becomes a new Python, because only a new program loads the libraries named in its environment.

    It runs one of our modules, which calls `play_on`.
    """

    def __init__(
        self, module: str, argument: str, environment: Mapping[str, str], limits: Limits = OF_A_WORKLOAD
    ) -> None:
        def body(_: Send) -> None:
            os.set_inheritable(self._messages, True)  # noqa: FBT003 - it takes no keyword
            command = [sys.executable, "-m", module, str(self._messages), argument]
            os.execve(command[0], command, {**os.environ, **environment})  # noqa: S606 - no shell is wanted

        super().__init__(body, limits)


def play_on(body: Callable[[Send, str], None]) -> NoReturn:
    """Run the body of a `ProgramFork` in the program that it has become; `body` also receives the argument."""
    messages, argument = int(sys.argv[1]), sys.argv[2]
    _end_after(lambda send: body(send, argument), messages)


def _end_after(body: Callable[[Send], None], messages: int) -> NoReturn:
    """Run the body, send what it sends and how it failed, and end this process."""

    def send(**line: Any) -> None:
        os.write(messages, json.dumps(line).encode() + b"\n")

    code = 1
    try:
        body(lambda message: send(message=message))
        code = 0
    except EngineFailed as error:  # raised for a fork of our own
        send(failed=str(error), failure=error.kind)
    except BaseException:  # noqa: BLE001 - any error is reported, and this process ends here
        send(failed=traceback.format_exc())
    finally:
        os._exit(code)
