"""A shell in this machine for somebody at the host: what is typed and printed goes over the machine's own channel."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rig.filesystems import kernel

_TERMINALS = Path("/dev/pts")
_READ_BYTES = 1 << 12
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8"}


def serve(directory: str, requests: Iterator[dict[str, Any]], reply: Callable[[dict[str, Any]], None]) -> int:
    """Run a shell in a directory until it ends; return its exit code.

    Requests have what was `typed`, in base64, until one says `over`: that answers our own `ended`.
    """
    import pty

    if not (_TERMINALS / "ptmx").exists():
        _TERMINALS.mkdir(exist_ok=True)
        kernel.mount("devpts", "devpts", "", str(_TERMINALS))
    pid, terminal = pty.fork()
    if pid == 0:
        _become(directory)
    listener = threading.Thread(target=_listen, args=(terminal, reply))
    listener.start()
    for request in requests:
        if "over" in request:
            break
        with suppress(OSError):  # the shell has just ended
            os.write(terminal, base64.b64decode(request["typed"]))
    listener.join()
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _listen(terminal: int, reply: Callable[[dict[str, Any]], None]) -> None:
    with suppress(OSError):  # EIO once the shell has ended
        while printed := os.read(terminal, _READ_BYTES):
            reply({"printed": base64.b64encode(printed).decode()})
    reply({"ended": True})


def _become(directory: str) -> NoReturn:
    try:
        os.chdir(directory)
        os.execve("/bin/sh", ["sh", "-i"], _ENVIRONMENT)  # noqa: S606 - that is what it is for
    finally:
        os._exit(127)
