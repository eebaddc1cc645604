"""A database server as a process: its start, its log, and its end. It does not outlive the process that started it.

The log goes into a pipe that every process of the server holds open: once the pipe has ended, all processes have ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
_F_SETPIPE_SZ = 1031
# Room for everything that a server says while nobody reads its log.
_LOG_BYTES = 1 << 20
_WORDS_CHARS = 600
# Longer than any recovery or copy takes under emulation; the judge of crash states has a limit of its own.
_LIMIT_S = 300
_libc = ctypes.CDLL(None)
Identity = Mapping[str, Any]


class ServerDown(Exception):
    """A server did not start, or did not end as it should; the message has its own words."""


class Server:
    """A server that is ready; raise ServerDown if it does not start.

    `ready` is in its log once it answers; `grave` finds the lines that say why it did not start or has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: str,
        ready: bytes,
        grave: re.Pattern[str],
        identity: Identity | None = None,
    ) -> None:
        """Start the command in a folder, as the user that `identity` names for `subprocess.Popen`."""
        self._ready, self._grave = ready, grave
        self._said = b""
        self._log, output = os.pipe()
        try:
            fcntl.fcntl(output, _F_SETPIPE_SZ, _LOG_BYTES)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
                env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it takes no lock
                **(identity or {}),
            )  # fmt: skip
        finally:
            os.close(output)
        if not self._says(ready):
            self._reap()
            raise ServerDown(f"the server does not start: {self.words}")

    @property
    def words(self) -> str:
        """Return the grave lines that its log has since it was ready, or the end of the log if no line is grave."""
        while self._log >= 0 and self._hears(0):
            pass
        lines = self._said.rpartition(self._ready)[2].decode(errors="replace").splitlines()
        grave = [match[0] for match in map(self._grave.search, lines) if match]
        return " ".join(" ".join(grave or lines).split())[-_WORDS_CHARS:]

    def end(self, number: signal.Signals) -> int:
        """Send a signal that ends the server, and wait for its end; return the exit code."""
        self._process.send_signal(number)
        self._says(None)
        return self._reap()

    def stop(self, number: signal.Signals) -> None:
        """Shut down with a signal; raise ServerDown if the server does not end well, or had ended before."""
        if exit_code := self.end(number):
            raise ServerDown(f"the server ended with exit code {exit_code}: {self.words}")

    def _says(self, words: bytes | None) -> bool:
        """Read the log until it has these words, or to its end; return whether it has them."""
        end_s = time.monotonic() + _LIMIT_S
        while words is None or words not in self._said:
            if not self._hears(end_s - time.monotonic()):
                if time.monotonic() < end_s:
                    return False
                self._process.kill()
                raise ServerDown(f"the server did nothing for {_LIMIT_S} s and was killed: {self.words}")
        return True

    def _hears(self, limit_s: float) -> bool:
        """Read what the log says within a time limit; return False if it says nothing or has ended."""
        poll = select.poll()
        poll.register(self._log, select.POLLIN)
        if not poll.poll(max(0.0, limit_s) * 1e3):
            return False
        chunk = os.read(self._log, 1 << 16)
        self._said = (self._said + chunk)[-_LOG_BYTES:]
        return bool(chunk)

    def _reap(self) -> int:
        exit_code = self._process.wait(_LIMIT_S)
        os.close(self._log)
        self._log = -1
        return exit_code


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def copy_durably(made: str, folder: str) -> None:
    """Put a copy of the data directory `made` at a place; the copy is durable, and either whole or not there."""
    new = f"{folder}.new"
    for old in (new, folder):
        shutil.rmtree(old, ignore_errors=True)
    # cp keeps owners and modes, and is faster than Python, which matters under emulation.
    subprocess.run(["cp", "-a", made, new], check=True, capture_output=True, timeout=_LIMIT_S)
    os.sync()
    os.rename(new, folder)
    parent = os.open(os.path.dirname(folder), os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
