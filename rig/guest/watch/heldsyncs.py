"""Hold the syncs of a thread before they begin, so that others get ahead: a sync may take as long as it likes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from rig.guest.watch import seccomp
from rig.guest.watch.seccomp import Listener

# Numbers on x86-64: fsync and fdatasync.
_SYNCS = (74, 75)
# How often the thread that holds looks up, which it need not.
_LOOK_S = 3600


def hold_syncs(hold: Callable[[], None]) -> bool:
    """Call `hold` in another thread before each fsync and fdatasync of the calling thread, for good.

    The sync begins when `hold` returns. Hold nothing and return False if the process is supervised, because the kernel
    lets one supervisor only decide on the calls of a process.
    """
    listeners = SimpleQueue[int | None]()

    def answer() -> None:
        descriptor = listeners.get()
        if descriptor is None:
            return
        listener = Listener(descriptor, os.getpid())
        for stop in listener.stops(lambda: False, _LOOK_S):
            hold()
            listener.carry_out(stop)

    # Started before there is a filter, so that its own calls pass.
    threading.Thread(target=answer, daemon=True).start()
    try:
        listeners.put(seccomp.install(_SYNCS))
    except OSError as error:
        listeners.put(None)
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
