"""Read from a process that is stopped before a system call which file the call is about, and where."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rig.guest.watch.seccomp import Stop

_PATH_BYTES_MAX = 4096
_AT_FDCWD = -100
_CREATE = os.O_CREAT
# struct iovec; the kernel takes at most this many.
_VECTOR, _VECTORS_MAX = struct.Struct("<QQ"), 1024
# Number on x86-64 -> the argument with the length of what is written.
_LENGTH_AT = {1: 2, 18: 2, 285: 3}
# The same for a list of buffers: the argument with the list, the next has its length.
_VECTORS_AT = {20: 1, 296: 1, 328: 1}
# The argument with the descriptor that is written to, if it is not the first: splice and copy_file_range.
_DESCRIPTOR_AT = {275: 2, 326: 2}
# Calls that may make a file: the argument with the flags; None if they always do.
_FLAGS_AT = {2: 1, 85: None, 257: 2}
_RENAMES, _RENAMES_AT = {82}, {264, 316}


def of_descriptor(stop: Stop) -> str:
    """Return the file of the descriptor that a call is about, or that it writes to."""
    return _link(stop, f"fd/{_descriptor(stop)}")


def of_path(stop: Stop) -> str:
    """Return the path in the first argument."""
    return _below(stop, _AT_FDCWD, stop.arguments[0])


def of_path_at(stop: Stop) -> str:
    """Return the path in the second argument, below the directory in the first."""
    return _below(stop, _signed_number(stop.arguments[0]), stop.arguments[1])


def of_mapping(stop: Stop) -> str:
    """Return the file that is mapped at an address."""
    for mapping in _mappings(stop.pid):
        if stop.arguments[0] in mapping.addresses:
            return mapping.path
    return ""


def mapped_part(stop: Stop) -> tuple[int, int]:
    """Return the offset and the length, in bytes, of the part of a file that a call is about; (-1, -1) if none."""
    for mapping in _mappings(stop.pid):
        if stop.arguments[0] in mapping.addresses:
            return mapping.offset_bytes + stop.arguments[0] - mapping.addresses.start, stop.arguments[1]
    return -1, -1


def files_in_memory(pid: int) -> set[str]:
    """Return the files that a process has mapped so that what it writes to memory reaches them; none if it is gone."""
    with suppress(OSError):
        return {mapping.path for mapping in _mappings(pid) if mapping.is_written_back and mapping.path.startswith("/")}
    return set()


def renamed_to(stop: Stop) -> str:
    """Return where a renamed file goes; empty for a call that renames nothing."""
    if stop.number in _RENAMES:
        return _below(stop, _AT_FDCWD, stop.arguments[1])
    return _below(stop, _signed_number(stop.arguments[2]), stop.arguments[3]) if stop.number in _RENAMES_AT else ""


def makes_file(stop: Stop, path: str) -> bool:
    """Return whether a call makes a file that is not there yet; True for a call that opens none."""
    if stop.number not in _FLAGS_AT:
        return True
    at = _FLAGS_AT[stop.number]
    return (at is None or bool(stop.arguments[at] & _CREATE)) and not os.path.lexists(path)


def open_without(flags: int, stop: Stop, path: str) -> int:
    """Open a file as a call would, but without some flags; return the descriptor. Raise OSError as it would fail."""
    at = _FLAGS_AT[stop.number]
    assert at is not None
    umask = os.umask(int(_status(stop)["Umask"], 8))
    try:
        return os.open(path, stop.arguments[at] & ~flags & 0xFFFFFFFF, stop.arguments[at + 1] & 0o7777)
    finally:
        os.umask(umask)


def _status(stop: Stop) -> dict[str, str]:
    lines = Path(f"/proc/{stop.pid}/status").read_text().splitlines()
    return {name: fact.strip() for name, _, fact in (line.partition(":") for line in lines)}


def length_bytes(stop: Stop) -> int:
    """Return how much a call writes; -1 if it writes nothing, or if that cannot be read."""
    if stop.number in _LENGTH_AT:
        return stop.arguments[_LENGTH_AT[stop.number]]
    if stop.number not in _VECTORS_AT:
        return -1
    at = _VECTORS_AT[stop.number]
    count = min(stop.arguments[at + 1], _VECTORS_MAX)
    listed = _read(stop, stop.arguments[at], count * _VECTOR.size)
    whole = listed[: len(listed) // _VECTOR.size * _VECTOR.size]
    return sum(length for _, length in _VECTOR.iter_unpack(whole))


def position(stop: Stop) -> int:
    """Return where the descriptor of a call writes next; -1 if it has no position."""
    with suppress(OSError, ValueError, IndexError):
        position, flags = _position_and_flags(stop)
        if flags & os.O_APPEND:
            return os.stat(f"/proc/{stop.pid}/fd/{_descriptor(stop)}").st_size
        return position
    return -1


def is_synced(stop: Stop) -> bool:
    """Return whether each write to the descriptor of a call is also a sync."""
    with suppress(OSError, ValueError, IndexError):
        return bool(_position_and_flags(stop)[1] & os.O_DSYNC)
    return False


def _position_and_flags(stop: Stop) -> tuple[int, int]:
    lines = Path(f"/proc/{stop.pid}/fdinfo/{_descriptor(stop)}").read_text().splitlines()
    known = dict(line.split(":", 1) for line in lines[:2])
    return int(known["pos"]), int(known["flags"], 8)


def _descriptor(stop: Stop) -> int:
    return _signed_number(stop.arguments[_DESCRIPTOR_AT.get(stop.number, 0)])


def program(stop: Stop) -> str:
    """Return the name of the program that was stopped."""
    with suppress(OSError):
        return Path(f"/proc/{stop.pid}/comm").read_text().strip()
    return ""


def _below(stop: Stop, descriptor: int, address: int) -> str:
    folder = _link(stop, "cwd" if descriptor == _AT_FDCWD else f"fd/{descriptor}")
    return os.path.normpath(os.path.join(folder, _text(stop, address)))


class _Mapping(NamedTuple):
    addresses: range
    # Whether it is shared and may be written to.
    is_written_back: bool
    offset_bytes: int
    path: str


def _mappings(pid: int) -> Iterator[_Mapping]:
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            span, rights, offset, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(address, 16) for address in span.split("-"))
            yield _Mapping(range(first, last), {"w", "s"} <= {*rights}, int(offset, 16), path[0] if path else "")


def _link(stop: Stop, name: str) -> str:
    try:
        return os.readlink(f"/proc/{stop.pid}/{name}")
    except FileNotFoundError:  # a descriptor that is not open: the call will fail with EBADF
        return ""


def _text(stop: Stop, address: int) -> str:
    # Read one page at a time: the string may end just before unmapped memory.
    text = b""
    while len(text) < _PATH_BYTES_MAX and b"\0" not in text:
        here = address + len(text)
        if not (part := _read(stop, here, 4096 - here % 4096)):
            break
        text += part
    return os.fsdecode(text.partition(b"\0")[0])


def _read(stop: Stop, address: int, length: int) -> bytes:
    """Read a process's memory; nothing if it cannot be read, as then the call will fail with EFAULT."""
    with open(f"/proc/{stop.pid}/mem", "rb", buffering=0) as memory, suppress(OSError):
        memory.seek(address)
        return memory.read(length)
    return b""


def _signed_number(word: int) -> int:
    value: int = struct.unpack("<i", struct.pack("<I", word & 0xFFFFFFFF))[0]
    return value
