"""Read from a shared library what decides whether it loads elsewhere: machine, needed libraries, symbols.

Only 64-bit little-endian files with section headers are understood, as linkers write them and `strip` leaves them.
Source of the format: elf(5), and "Symbol Versioning" of the Linux Standard Base for the needed versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_AUX = struct.Struct("<IHHII")
_SHARED_OBJECT, _X86_64 = 3, 62
_DYNAMIC_SECTION, _SYMBOLS_SECTION, _NEEDS_SECTION = 6, 11, 0x6FFFFFFE
_NEEDED, _UNDEFINED = 1, 0
_GLIBC = "GLIBC_"


class ElfError(Exception):
    """The file is no shared library that can be read; the message says what it is instead."""


@dataclass(frozen=True)
class SharedLibrary:
    """What a shared library offers and asks for."""

    is_x86_64: bool
    needed: tuple[str, ...]
    defined: frozenset[str]
    # The newest version of the GNU C library of which it uses something, such as (2, 34); (0,) for none.
    glibc: tuple[int, ...]


def shared_library(data: bytes) -> SharedLibrary:
    """Return what is in the bytes of a shared library; raise ElfError for anything else."""
    if data[:4] != b"\x7fELF":
        raise ElfError("it is no ELF file")
    if data[4:6] != b"\x02\x01":
        raise ElfError("it is not for a 64-bit little-endian machine")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ElfError(f"it is damaged: {error}") from None


def _read(data: bytes) -> SharedLibrary:
    header = _HEADER.unpack_from(data)
    kind, machine, sections_offset, section_count = header[1], header[2], header[6], header[12]
    if kind != _SHARED_OBJECT:
        raise ElfError("it is an ELF file, but no shared library")
    sections = [_SECTION.unpack_from(data, sections_offset + n * _SECTION.size) for n in range(section_count)]
    found: dict[int, tuple[bytes, bytes]] = {}
    for _, kind, _, _, offset, size, link, *_ in sections:
        strings = sections[link]
        found[kind] = data[offset : offset + size], data[strings[4] : strings[4] + strings[5]]
    if _DYNAMIC_SECTION not in found or _SYMBOLS_SECTION not in found:
        raise ElfError("it has no table of dynamic symbols")
    return SharedLibrary(
        machine == _X86_64,
        tuple(_needed(*found[_DYNAMIC_SECTION])),
        frozenset(_defined(*found[_SYMBOLS_SECTION])),
        max((_version(name) for name in _versions(*found.get(_NEEDS_SECTION, (b"", b"")))), default=(0,)),
    )


def _needed(dynamic: bytes, strings: bytes) -> Iterator[str]:
    for tag, value in _DYNAMIC.iter_unpack(dynamic):
        if tag == _NEEDED:
            yield _string(strings, value)


def _defined(symbols: bytes, strings: bytes) -> Iterator[str]:
    for name, _, _, section, _, _ in _SYMBOL.iter_unpack(symbols):
        if section != _UNDEFINED:
            yield _string(strings, name)


def _versions(needs: bytes, strings: bytes) -> Iterator[str]:
    """Yield the names of all versions that are needed: records of records, each with the distance to the next."""
    at = 0
    while needs:
        _, count, _, first, following = _NEED.unpack_from(needs, at)
        aux = at + first
        for _ in range(count):
            _, _, _, name, distance = _NEED_AUX.unpack_from(needs, aux)
            yield _string(strings, name)
            aux += distance
        if not following:
            return
        at += following


def _version(name: str) -> tuple[int, ...]:
    parts = name.removeprefix(_GLIBC).split(".")
    is_glibc = name.startswith(_GLIBC) and all(part.isascii() and part.isdecimal() for part in parts)
    return tuple(map(int, parts)) if is_glibc else (0,)


def _string(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode()
