"""Run one machine for the length of a `with` block, and talk to the agent in it: a QEMU process, or a kernel itself.

The process runs in a sandbox (`rig.sandbox`) and dies with us, even if we are killed. Every wait for it has a time
limit (`rig.machines.limit`). The channel to the agent is a socket pair, connected before the machine starts; it leaves
no file.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from rig.contract.errors import EngineError, VmError
from rig.machines.limit import Limit, descendants
from rig.machines.memoryfile import copy_into
from rig.machines.pinning import processor
from rig.sandbox.sandbox import Sandbox

_KILL_LIMIT_S = 10
_START_LIMIT_S = 10
# How long to wait for the exit code after the channel has closed.
_EXIT_CODE_LIMIT_S = 1
# Enough to include the reason for a panic, which is printed above its trace.
_CONSOLE_SHOWN_CHARS = 2000
_CONSOLE_LOOK_S = 0.02


class Machine:
    """A running machine. Raises VmError if it is lost, TimeoutError if an answer is late; both quote its console."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        console: Path,
        control: socket.socket,
        disk: BinaryIO,
    ) -> None:
        # The launcher of the sandbox, which ends with the machine.
        self.process = process
        # The monitor's socket.
        self.control = control
        # Whether the machine was changed in a way that no other job may see.
        self.is_spent = False
        self._channel = channel
        self._console = console
        self._disk = disk
        self._received = bytearray()
        self._awaited: Limit | None = None

    @property
    def pid(self) -> int:
        """Wait for the process id of the machine itself, and return it; raise VmError if it has ended."""
        limit = self.limit(_START_LIMIT_S, "process")
        # The launcher and the first process of the machine's process namespace come before it.
        while len(family := list(descendants(Path(f"/proc/{self.process.pid}")))) < 3:
            if self.process.poll() is not None or limit.is_over:
                raise self.loss("it has no process")
            time.sleep(_CONSOLE_LOOK_S)
        return int(family[2].name)

    def plug(self, recording: Path) -> None:
        """Give the machine a copy of a recording in place of the one it has; raise VmError if it has ended."""
        if self.process.poll() is not None:
            raise self.loss("it ended before it got a recording")
        copy_into(self._disk, recording)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message to the agent."""
        self._say(json.dumps(message))

    def _say(self, line: str) -> None:
        try:
            self._channel.sendall(line.encode() + b"\n")
        except OSError as error:
            raise self.loss(f"cannot send to the agent: {error}") from None

    def receive(self, limit_s: float) -> dict[str, Any]:
        """Return the agent's next JSON line; raise VmError or EngineError if the line reports one."""
        self._awaited = limit = self.limit(limit_s, "answer")
        while (end := self._received.find(b"\n")) < 0:
            self._receive(limit)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        message: dict[str, Any] = json.loads(line)
        if "failed" in message:
            raise EngineError(f"{message['failed']}; run its transactions without the rig, or report it to its authors")
        if "error" in message:
            raise VmError(f"the agent failed:\n{message['error']}")
        return message

    @property
    def answered_in_s(self) -> float:
        """How much time the machine had for the answer that has just come; see `rig.machines.limit`."""
        return self._awaited.used_s if self._awaited else 0.0

    def receive_bytes(self, count: int, limit_s: float, write: Callable[[bytes], object]) -> None:
        """Hand the next `count` bytes from the agent to `write`."""
        limit = self.limit(limit_s, "more bytes of an answer")
        while count:
            if not self._received:
                self._receive(limit)
            part = bytes(self._received[:count])
            del self._received[: len(part)]
            write(part)
            count -= len(part)

    def wait_for_console(self, word: str, failure: str, limit_s: float) -> None:
        """Return once `word` is on the console; raise VmError if `failure` is, or if the machine ends or is late."""
        limit = self.limit(limit_s, word)
        while word not in (text := self.console_text()):
            if self.process.poll() is not None or failure in text:
                raise self.loss(f"it ended while we waited for {word}")
            if limit.is_over:
                raise self.loss(str(limit))
            time.sleep(_CONSOLE_LOOK_S)

    def limit(self, limit_s: float, awaited: str) -> Limit:
        """Return a limit, from now on, for `awaited` to come from this machine."""
        return Limit(self.process.pid, limit_s, awaited)

    def console_text(self) -> str:
        """Return what the guest has printed so far."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def loss(self, what: str) -> VmError:
        """Return an error that says what happened, with the exit code and the last lines of the console."""
        code = self.process.poll()
        ended = "still running"
        if code is not None:
            assert self.process.stderr
            ended = f"ended with {code} {self.process.stderr.read().decode(errors='replace').strip()}"
        return VmError(f"virtual machine: {what} ({ended}); console: ...{self.console_text()[-_CONSOLE_SHOWN_CHARS:]}")

    def _receive(self, limit: Limit) -> None:
        while not select.select([self._channel], [], [], limit.look_again_s)[0]:
            if limit.is_over:
                raise TimeoutError(str(self.loss(str(limit))))
        try:
            chunk = self._channel.recv(1 << 20)
        except ConnectionResetError:  # the machine ended before it had read all our requests
            chunk = b""
        if not chunk:
            _has_ended(self.process, self.limit(_EXIT_CODE_LIMIT_S, "end"))
            raise self.loss(f"it ended before its {limit.awaited}")
        self._received += chunk


@contextmanager
def start(
    command: Callable[[int, int], Sequence[str]],
    sandbox: Sandbox,
    *,
    console: Path,
    disk: BinaryIO,
    one_cpu: bool,
    kind: Callable[[subprocess.Popen[bytes], socket.socket, Path, socket.socket, BinaryIO], Machine] = Machine,
) -> Iterator[Machine]:
    """Start a machine in a sandbox for the length of a block; give it as a `kind` of machine.

    The machine is killed when the thread that starts it ends (PR_SET_PDEATHSIG), even within the block.

    `command` is called with the descriptors of the machine's ends of the channel and the monitor. `disk` is the memory
    of the machine's recording.

    `one_cpu` keeps all of QEMU's threads on one host processor under SCHED_BATCH, where a waking thread does not
    preempt another. Otherwise recordings on a busy host differ by a few virtual nanoseconds (QEMU 7.2, measured). The
    likely cause, inferred and not proven: under icount the main loop advances the clock of a guest that has just halted
    (icount_start_warp_timer). If it runs in parallel with the vCPU thread, or preempts it, it may do so before the last
    instructions are counted.
    """
    with ExitStack() as stack:
        channel, channel_end = map(stack.enter_context, socket.socketpair())
        control, control_end = map(stack.enter_context, socket.socketpair())
        ends = (channel_end.fileno(), control_end.fileno())
        cpu = stack.enter_context(processor()) if one_cpu else None
        sandbox = replace(sandbox, kept=(*sandbox.kept, *ends), cpu=cpu)
        sandbox.open_to_nobody()
        process = _gate.launch(sandbox.command(command(*ends)), sandbox.descriptors)
        channel_end.close()
        control_end.close()
        try:
            yield kind(process, channel, console, control, disk)
        finally:
            process.kill()
            limit = Limit(process.pid, _KILL_LIMIT_S, "end after SIGKILL")
            if not _has_ended(process, limit):
                raise VmError(f"virtual machine {process.pid}: {limit}")
            _gate.forget(process)
            assert process.stderr
            process.stderr.close()


def _has_ended(process: subprocess.Popen[bytes], limit: Limit) -> bool:
    """Wait for a process to end; return whether it did within the limit."""
    while True:
        try:
            process.wait(limit.look_again_s)
        except subprocess.TimeoutExpired:
            if limit.is_over:
                return False
        else:
            return True


def stop_all() -> None:
    """Kill every machine of this process and let none start until `allow_all`. Waiting for one raises VmError."""
    _gate.close()


def allow_all() -> None:
    """Let machines start again."""
    _gate.open()


class _Gate:
    """The machines that run in this process, and whether another may start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    def open(self) -> None:
        with self._lock:
            self._is_closed = False

    def launch(self, command: Sequence[str], pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise VmError("machines are being stopped: the time was over, or somebody stopped the command")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
                # Ctrl-C must reach only us: we shut the machine down in order.
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)


_gate = _Gate()
