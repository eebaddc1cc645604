"""Write back what a workload has written before its next call, as the kernel may: it is not synced by that.

A page that was written may reach the disk at any time, be it that another process needs memory. Here sync_file_range(2)
writes the pages of a file, which neither commits a journal nor flushes a disk's cache. So a cut may find any page ahead
of what is synced later.

A page may be late as well. In half of the transactions what was written to a file reaches the disk before the next
call; in the others a coin decides at each call whether it does now.
"""

from __future__ import annotations

import ctypes
import os
import random
import stat
from dataclasses import dataclass, field

from rig.contract.scenario import WRITEBACK
from rig.engines.syncs import Call, CallName
from rig.guest.site import Site
from rig.guest.watch.stopped import files_in_memory
from rig.guest.watch.supervisor import Action, Watch, WorkloadPhase, WorkloadPosition

_SHARES = (0.5, 1)
_WRITES = {CallName.WRITE, CallName.TRUNCATE, CallName.ALLOCATE}
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER, of the whole file.
_ALL_AND_WAIT, _WHOLE = 7, 0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class EarlyWriteback:
    """Writes files below a directory back before it asks another watch about the next call."""

    directory: str
    watch: Watch
    # How many times a file was written back.
    count: int = 0
    # For the coins, which are the same in each recording.
    seed: int = 1
    # What has been written since.
    _due: dict[str, None] = field(default_factory=dict)
    # The transaction under way, and the share of what is due that is written back at a call.
    _number: int = 0
    _share: float = 1
    # Threads that have made calls: their memory is looked at.
    _threads: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take the coins."""
        self._coins = random.Random(f"written back {self.seed}")

    def on_move(self, place: WorkloadPosition) -> Action:
        """Write back what is due; once a commit has returned, also what is mapped into memory."""
        if place.phase is WorkloadPhase.COMMITTED:
            self._note_mapped()
        self._write_back(place.number)
        return self.watch.on_move(place)

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Write back what is due, before a sync also what is mapped into memory, and note what the call makes due."""
        self._threads.add(call.thread)
        if call.name is CallName.SYNC:
            self._note_mapped()
        self._write_back(place.number)
        if call.name in _WRITES and call.path.startswith(f"{self.directory}/"):
            self._due[call.path] = None
        return self.watch.on_call(place, call, kind)

    def _note_mapped(self) -> None:
        mapped = set().union(*map(files_in_memory, self._threads))
        self._due |= dict.fromkeys(path for path in sorted(mapped) if path.startswith(f"{self.directory}/"))

    def _write_back(self, number: int) -> None:
        if number != self._number:
            self._number, self._share = number, self._coins.choice(_SHARES)
        now = [path for path in self._due if self._coins.random() < self._share]
        for path in now:
            del self._due[path]
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except FileNotFoundError:  # removed since it was written to
                continue
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    write_back(descriptor)
                    self.count += 1
            finally:
                os.close(descriptor)


def write_back(descriptor: int) -> None:
    """Write the dirty pages of a file and wait until the disk has taken them; raise OSError if that fails."""
    offset, length = ctypes.c_int64(0), ctypes.c_int64(_WHOLE)
    if _libc.sync_file_range(descriptor, offset, length, ctypes.c_uint(_ALL_AND_WAIT)):
        number = ctypes.get_errno()
        raise OSError(number, f"sync_file_range: {os.strerror(number)}")


def beneath(site: Site, watch: Watch) -> Watch:
    """Return a watch that also writes back early, if the orders of a site say so; otherwise the same watch."""
    is_early = site.orders.neighbour == WRITEBACK
    return EarlyWriteback(site.directory, watch, seed=site.orders.seed) if is_early else watch
