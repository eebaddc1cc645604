"""The host processor that a machine is kept on: one with the fewest machines. Other processes count too.

Two machines on one processor take twice as long while another processor may have nothing to do. A place on a processor
is an address of a Unix socket in the abstract namespace (unix(7)): one process at a time has it, every process of the
host can see that, and it is free again when its process ends.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def processor(name: str = "powercut-rig processor") -> Iterator[int]:
    """Give one of the processors that this process may use, for the length of a block; `name` begins the addresses."""
    with socket.socket(socket.AF_UNIX) as place:
        yield _take(place, name)


def _take(place: socket.socket, name: str) -> int:
    processors = sorted(os.sched_getaffinity(0))
    for rank in itertools.count():
        for number in processors:
            try:
                place.bind(f"\0{name} {number} place {rank}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    return processors[os.getpid() % len(processors)]
            else:
                return number
    raise AssertionError("there is no end of places")
