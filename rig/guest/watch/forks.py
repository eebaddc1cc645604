"""A fork of this process that runs one function and sends messages, for work that must be able to die without us.

Under emulation it takes a second to start another Python; a fork has everything loaded.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

Send = Callable[[Any], None]


# A processor that lacks an instruction, or native code that jumped astray.
_ILLEGAL = '; if the engine is built for a newer processor, its spec has to say processor="modern"'


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


@dataclass(frozen=True)
class Ending:
    """How a fork ended: its messages, its exit code (the negative signal number if killed), and why it failed."""

    messages: tuple[Any, ...]
    exit_code: int
    why: str


class Fork:
    """A fork that runs `body`, which receives a function that sends a message as JSON."""

    def __init__(self, body: Callable[[Send], None]) -> None:
        self._messages = os.memfd_create("messages")
        # Keep the fork's garbage collector from touching, and so copying, the pages of existing objects.
        gc.freeze()
        self.pid = os.fork()
        if self.pid == 0:
            self._play(body)

    def wait(self) -> Ending:
        """Wait for the fork to end; return how it did."""
        _, status = os.waitpid(self.pid, 0)
        with open(self._messages, "rb") as file:
            file.seek(0)
            lines = [json.loads(line) for line in file]
        exit_code = os.waitstatus_to_exitcode(status)
        why = next((line["failed"] for line in lines if "failed" in line), manner(exit_code))
        return Ending(tuple(line["message"] for line in lines if "message" in line), exit_code, why)

    def _play(self, body: Callable[[Send], None]) -> NoReturn:
        def send(**line: Any) -> None:
            os.write(self._messages, json.dumps(line).encode() + b"\n")

        code = 1
        try:
            body(lambda message: send(message=message))
            code = 0
        except BaseException:  # noqa: BLE001 - any error is reported, and this process ends here
            send(failed=traceback.format_exc())
        finally:
            os._exit(code)
