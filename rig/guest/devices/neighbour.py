"""A noisy neighbour: another process on the file system, which syncs a file of its own all the time.

On a journalling file system such a sync commits what everybody has changed by then: names, sizes, where blocks are. So
a name may be durable before the bytes of its file, though the program never asked for that.

The neighbour appends to its file and syncs it every half second, and without a pause while a transaction is under way.
The workload tells it over a socket when a transaction begins and ends. A transaction of a second or more is synced less
often after a while, because every sync is a flush in the log. Its folder is hidden, and no part of the file content.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

FOLDER = ".neighbour"
_SOCKET = Path("/run/neighbour")
_BEGINS, _ENDS = b"begins", b"ends"
_IDLE_MS, _BUSY_MS, _LONG_MS = 500, 2, 50
# This many syncs of one transaction are made without a pause.
_BUSY_COUNT = 16
# The size of the file changes with each sync, so there is always something to commit for it.
_RECORD = bytes(512)
_COUNT_BYTES = 8


@contextmanager
def beside(directory: str, count_min: int) -> Iterator[None]:
    """For the length of a block, have a neighbour below a directory; raise RuntimeError if it synced less than this."""
    os.mkdir(os.path.join(directory, FOLDER))
    path = os.path.join(directory, FOLDER, "file")
    with mmap.mmap(-1, mmap.PAGESIZE) as counted, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(_SOCKET))
        pid = os.fork()
        if pid == 0:
            _live(path, channel, counted)
        try:
            yield
        finally:
            # It may have been killed and reaped with all other children of this process.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            _SOCKET.unlink()
        if (count := int.from_bytes(counted[:_COUNT_BYTES], "little")) < count_min:
            raise RuntimeError(f"the neighbour synced its file {count} times, and not at least {count_min} times")


@contextmanager
def busy() -> Iterator[None]:
    """For the length of a block, have the neighbour sync without a pause."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(str(_SOCKET))
        channel.send(_BEGINS)
        yield
        channel.send(_ENDS)


def _live(path: str, channel: socket.socket, counted: mmap.mmap) -> NoReturn:
    """Append and sync until the end. This runs in the fork."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        count, left, is_busy = 0, 0, False
        while True:
            os.write(file, _RECORD)
            os.fsync(file)
            count, left = count + 1, left - 1
            counted[:_COUNT_BYTES] = count.to_bytes(_COUNT_BYTES, "little")
            pause_ms = (_BUSY_MS if left > 0 else _LONG_MS) if is_busy else _IDLE_MS
            while poll.poll(pause_ms):
                is_busy, left, pause_ms = channel.recv(len(_BEGINS)) == _BEGINS, _BUSY_COUNT, 0
    finally:
        # A neighbour that ended early has not done its work.
        counted[:_COUNT_BYTES] = bytes(_COUNT_BYTES)
        os._exit(1)
