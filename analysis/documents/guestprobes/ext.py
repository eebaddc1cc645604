"""Small experiments with a mirror without checksums: they run as root in a guest, on two empty disks of its own.

Each returns figures. The copies are made to differ below the mirror, while it is not assembled, as after a power cut
that one of its disks survived for longer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence

from rig.filesystems import md

Figures = Mapping[str, int]

_BLOCK = 4096
# Every other block: a block that continues the one before would be read from the same disk.
_PLACES = tuple(range(32 << 20, 33 << 20, 2 * _BLOCK))
_COPIES = {"first": b"\1" * _BLOCK, "second": b"\2" * _BLOCK}
_LIMIT_S = 120
# include/uapi/linux/aio_abi.h, struct iocb: key, flags, operation (0: read), priority, file, buffer, length, offset.
_READ = struct.Struct("<8xIIHhIQQq16x")
# The numbers of the system calls io_setup, io_destroy, io_getevents and io_submit. The third column of an event is the
# result.
_SETUP, _DESTROY, _EVENTS, _SUBMIT = 206, 207, 208, 209
_EVENT = struct.Struct("<QQqq")
_libc = ctypes.CDLL(None, use_errno=True)


def resync(disks: Sequence[str], folder: str) -> Figures:  # noqa: ARG001 - nothing is mounted
    """Read a mirror whose copies differ, dirty and then clean; count the blocks that come from each copy.

    `copied` counts the blocks of the second disk that equal the first disk's once any resync has ended.
    """
    md.make(disks[0], disks[1])
    begin, figures = md.data_begins_at(disks[0]), {"blocks": len(_PLACES)}
    for state in ("dirty", "clean"):
        for disk, block in zip(disks, _COPIES.values(), strict=True):
            _write(disk, block)
            if state == "dirty":
                md.mark_dirty(disk)
        with md.assemble(disks[0], disks[1]) as device:
            blocks = _read(device, [place - begin for place in _PLACES])
            figures |= {f"{state}_{copy}": blocks.count(block) for copy, block in _COPIES.items()}
            md.wait_until_synced(_LIMIT_S)
        figures[f"{state}_copied"] = _read(disks[1], _PLACES).count(_COPIES["first"])
    return figures


PROBES: Mapping[str, Callable[[Sequence[str], str], Figures]] = {resync.__name__: resync}


def _write(disk: str, block: bytes) -> None:
    node = os.open(disk, os.O_RDWR)
    try:
        for place in _PLACES:
            os.pwrite(node, block, place)
        os.fsync(node)
    finally:
        os.close(node)


def _read(device: str, places: Sequence[int]) -> list[bytes]:
    """Read blocks at once, past the page cache: md sends a read to the disk for which the fewest are waiting."""
    buffer, context = mmap.mmap(-1, _BLOCK * len(places)), ctypes.c_ulong()
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    node = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        _call(_SETUP, len(places), ctypes.byref(context))
        targets = range(address, address + len(buffer), _BLOCK)
        packed = [
            _READ.pack(0, 0, 0, 0, node, target, _BLOCK, place) for target, place in zip(targets, places, strict=True)
        ]
        reads = [ctypes.create_string_buffer(block, _READ.size) for block in packed]
        pointers = (ctypes.c_void_p * len(reads))(*map(ctypes.addressof, reads))
        events = ctypes.create_string_buffer(_EVENT.size * len(places))
        submitted = _call(_SUBMIT, context, len(reads), pointers)
        ended = _call(_EVENTS, context, submitted, submitted, events, None)
        _call(_DESTROY, context)
    finally:
        os.close(node)
    results = [result for _, _, result, _ in _EVENT.iter_unpack(events.raw)]
    if ended != len(places) or set(results) != {_BLOCK}:
        raise OSError(f"{device}: {ended} of {len(places)} reads ended, with {sorted(set(results))}")
    return [buffer[begin : begin + _BLOCK] for begin in range(0, len(buffer), _BLOCK)]


def _call(number: int, *words: object) -> int:
    """Make a system call; raise OSError with the kernel's errno."""
    if (result := _libc.syscall(number, *words)) < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return int(result)
