"""A fork of this process that carries out one function and sends messages, for what has to die without us.

Starting another Python takes a second of emulation; a fork has everything loaded.
"""

from __future__ import annotations

import gc
import json
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

Send = Callable[[Any], None]


@dataclass(frozen=True)
class Ending:
    """How a fork ended: the messages it sent, its exit code (minus the signal that killed it), why it failed."""

    messages: tuple[Any, ...]
    exit_code: int
    why: str


class Fork:
    """A fork at work on `body`, which is given a function that sends a message, as JSON."""

    def __init__(self, body: Callable[[Send], None]) -> None:
        self._messages = os.memfd_create("messages")
        # What is here now is nothing for the fork's collector to touch.
        gc.freeze()
        self.pid = os.fork()
        if self.pid == 0:
            self._play(body)

    def wait(self) -> Ending:
        """Return how it ended, once it has."""
        _, status = os.waitpid(self.pid, 0)
        with open(self._messages, "rb") as file:
            file.seek(0)
            lines = [json.loads(line) for line in file]
        exit_code = os.waitstatus_to_exitcode(status)
        why = next((line["failed"] for line in lines if "failed" in line), f"it ended with {exit_code}")
        return Ending(tuple(line["message"] for line in lines if "message" in line), exit_code, why)

    def _play(self, body: Callable[[Send], None]) -> NoReturn:
        def send(**line: Any) -> None:
            os.write(self._messages, json.dumps(line).encode() + b"\n")

        code = 1
        try:
            body(lambda message: send(message=message))
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, it is told, and this process ends here
            send(failed=traceback.format_exc())
        finally:
            os._exit(code)
