"""The extents of a file are read to the last one, however many calls that takes."""

from __future__ import annotations

import fcntl
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.filesystems import fiemap
from rig.filesystems.fiemap import FileExtent

_LAST = 1


class _Kernel:
    """What FIEMAP does with a request, for a file with these extents."""

    def __init__(self, extents: list[FileExtent]) -> None:
        self.extents = extents
        self.call_count = 0

    def ioctl(self, _descriptor: int, _number: int, request: bytearray) -> int:
        self.call_count += 1
        start, length, flags, _, room, _ = struct.unpack_from("<QQIIII", request)
        found = [
            one for one in self.extents if start < one.file_offset + one.length and one.file_offset < start + length
        ]
        for index, one in enumerate(found[:room]):
            row = (one.file_offset, one.device_offset, one.length, 0, 0, one.flags, 0, 0, 0)
            struct.pack_into("<QQQQQIIII", request, 32 + 56 * index, *row)
        struct.pack_into("<QQIIII", request, 0, start, length, flags, len(found[:room]), room, 0)
        return 0


def _file(lengths: list[tuple[int, int]], *, ends: bool) -> list[FileExtent]:
    """Return extents of these lengths, each after a hole; the last one is marked as such if it `ends` the file."""
    found, offset = [], 0
    for number, (hole, length) in enumerate(lengths):
        is_last = ends and number == len(lengths) - 1
        found.append(FileExtent(offset + hole, number << 20, length, _LAST if is_last else 0))
        offset += hole + length
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(count=st.integers(0, 1100), hole=st.integers(0, 3), ends=st.booleans())
def test_every_extent_is_read_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, count: int, hole: int, ends: bool
) -> None:
    file = _file([(hole << 12, 4096 * (1 + number % 3)) for number in range(count)], ends=ends)
    kernel = _Kernel(file)
    monkeypatch.setattr(fcntl, "ioctl", kernel.ioctl)
    assert file == list(fiemap.extents(3))
    assert kernel.call_count <= count // 512 + 2


def test_bytes_that_the_device_does_not_hold_are_told_apart() -> None:
    assert FileExtent(0, 4096, 512, _LAST).is_on_device
    for flag in (0x2, 0x4, 0x8, 0x80, 0x200):
        assert not FileExtent(0, 4096, 512, flag | _LAST).is_on_device
