"""When requests of a device were submitted and when they completed, by the kernel's block trace.

include/uapi/linux/blktrace_api.h defines the interface: three ioctls on the block device, and a file of records in
debugfs. `rig.faults.log.submissions` reads the records.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.guest.devices import mounts

_DEBUGFS = Path("/sys/kernel/debug")
_SETUP, _START, _STOP, _TEARDOWN = 0xC0481273, 0x1274, 0x1275, 0x1276
# struct blk_user_trace_setup: name, mask of actions, size and number of buffers, first and last sector, process.
_SETUP_ORDERS = struct.Struct("<32sHxxII4xQQI4x")
# Requests are queued, and completed.
_QUEUE, _COMPLETE = 1 << 4, 1 << 7
# 32 MiB: the longest workload with a seed that makes many small writes fills 13.
_BUFFER_BYTES, _BUFFER_COUNT = 1 << 16, 512


@contextmanager
def trace(device: str) -> Iterator[bytearray]:
    """Trace a device for the length of a block; give the records, which are filled in at its end.

    Raise RuntimeError if the kernel dropped records, because the trace is then incomplete.
    """
    if not (_DEBUGFS / "block").exists():
        # It stays mounted; that disturbs nothing else here.
        mounts.mount("debugfs", "debugfs", point=str(_DEBUGFS))
    records = bytearray()
    node = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    try:
        folder = _DEBUGFS / "block" / _set_up(node)
        fcntl.ioctl(node, _START)
        try:
            yield records
        finally:
            fcntl.ioctl(node, _STOP)
            dropped = int((folder / "dropped").read_text())
            records += (folder / "trace0").read_bytes()
            fcntl.ioctl(node, _TEARDOWN)
    finally:
        os.close(node)
    if dropped:
        raise RuntimeError(f"the kernel dropped {dropped} records of the requests to {device}")


def _set_up(node: int) -> str:
    """Make the buffers; return the name of the trace's folder."""
    orders = bytearray(_SETUP_ORDERS.pack(b"", _QUEUE | _COMPLETE, _BUFFER_BYTES, _BUFFER_COUNT, 0, 0, 0))
    fcntl.ioctl(node, _SETUP, orders)
    return bytes(orders[:32]).split(b"\0")[0].decode()
