"""A server: the process that is started on a cluster, its log, and its end. It does not outlive whoever started it.

The log goes into a pipe, which each of the server's processes holds open: once it has ended, all of them have.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import time
from collections.abc import Mapping

from rig.engines.postgresql import place
from rig.engines.postgresql.libpq import PostgresError

_PR_SET_PDEATHSIG = 1
_F_SETPIPE_SZ = 1031
# Room for all that a server says while nobody reads it.
_LOG_BYTES = 1 << 20
_READY = b"database system is ready to accept connections"
# Levels of the log that tell why a server did not start or has ended.
_GRAVE = ("FATAL:", "PANIC:")
_WORDS_CHARS = 600
# Longer than any recovery of ours takes under emulation; whoever judges a crash state has a limit of its own.
_LIMIT_S = 300
_libc = ctypes.CDLL(None)


class Server:
    """A server that answers; raise PostgresError, with its own words, if it does not start."""

    def __init__(self, folder: str, parameters: Mapping[str, str]) -> None:
        self.sockets = place.sockets(folder)
        given = {**parameters, "unix_socket_directories": self.sockets}
        command = [place.program("postgres"), "-D", folder]
        command += [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        self._said = b""
        self._log, output = os.pipe()
        try:
            fcntl.fcntl(output, _F_SETPIPE_SZ, _LOG_BYTES)
            self._process = place.started(command, output, _die_with_parent)
        finally:
            os.close(output)
        if not self._says(_READY):
            self._reap()
            raise PostgresError(f"the server does not start: {self.words}")

    @property
    def words(self) -> str:
        """Return the gravest that its log says; if there is nothing grave, the end of what it says once it is ready."""
        while self._log >= 0 and self._hears(0):
            pass
        lines = self._said.rpartition(_READY)[2].decode(errors="replace").splitlines()
        grave = [line for line in lines if line.startswith(_GRAVE)]
        return " ".join(" ".join(grave or lines).split())[-_WORDS_CHARS:]

    def stop(self) -> None:
        """Shut down as an administrator does; raise PostgresError if the server does not manage to, or had ended."""
        if exit_code := self._ended(signal.SIGINT):
            raise PostgresError(f"the server ended with exit code {exit_code}: {self.words}")

    def abandon(self) -> None:
        """Shut down at once: the next start recovers."""
        self._ended(signal.SIGQUIT)

    def _ended(self, number: signal.Signals) -> int:
        """Ask it to end, and wait until it has; return the exit code."""
        self._process.send_signal(number)
        self._says(None)
        return self._reap()

    def _says(self, words: bytes | None) -> bool:
        """Read the log until it has these words, or to its end; return whether it has them."""
        end_s = time.monotonic() + _LIMIT_S
        while words is None or words not in self._said:
            if not self._hears(end_s - time.monotonic()):
                if time.monotonic() < end_s:
                    return False
                self._process.kill()
                raise PostgresError(f"the server did nothing for {_LIMIT_S} s and was killed: {self.words}")
        return True

    def _hears(self, limit_s: float) -> bool:
        """Read what the log says within a limit; return False if that is nothing, or the end."""
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
