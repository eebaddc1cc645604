"""Whole disks: crash states built on the host byte for byte, as a verifier builds them in a guest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rig.faults.log.arrays import ByteArray
from rig.faults.log.log import WriteLog
from rig.faults.states.state import CrashState


def content(log: WriteLog, state: CrashState, device_bytes: int) -> ByteArray:
    """Build the whole disk of one state."""
    (device,) = (each.copy() for each in contents(log, [state], device_bytes))
    return device


def contents(log: WriteLog, states: Iterable[CrashState], device_bytes: int) -> Iterator[ByteArray]:
    """Build the whole disk of each state, valid until the next; states must be sorted by base (`base_end`)."""
    device: ByteArray = np.zeros(device_bytes, dtype=np.uint8)
    base_end = 0
    for state in states:
        for extent in state.advance(log, base_end):
            _put(device, extent.device_offset_bytes, extent.data(log))
        base_end = state.base_end
        extents = state.extents(log)
        kept = [
            (extent.device_offset_bytes, device[extent.device_offset_bytes :][: extent.length_bytes].copy())
            for extent in extents
        ]
        for extent in extents:
            _put(device, extent.device_offset_bytes, extent.data(log))
        yield device
        # All old ranges were kept before the first extent was put, so the order of restoring does not matter.
        for offset_bytes, data in kept:
            _put(device, offset_bytes, data)


def _put(device: ByteArray, offset_bytes: int, data: bytes | ByteArray) -> None:
    device[offset_bytes : offset_bytes + len(data)] = np.frombuffer(data, dtype=np.uint8)
