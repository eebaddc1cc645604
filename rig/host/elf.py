"""Read from a shared library or a program whether it can run elsewhere: machine, needed libraries, symbols.

It understands only 64-bit little-endian files with section headers, as linkers write them and `strip` leaves them.
pyelftools reads the tables. A damaged file can make it raise anything or loop; both end in `ElfError`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

_GLIBC = "GLIBC_"
# No section header, and no record of the tables read here, is smaller.
_RECORD_BYTES_MIN = 16

_Record = TypeVar("_Record")
_Found = TypeVar("_Found")


class ElfError(Exception):
    """The file is not a readable shared library or program; the message says why."""


@dataclass(frozen=True)
class SharedLibrary:
    """What a shared library offers and needs."""

    is_x86_64: bool
    needed: tuple[str, ...]
    defined: frozenset[str]
    # The newest version of the GNU C library whose symbols it uses, for example (2, 34); (0,) for none.
    glibc: tuple[int, ...]


def shared_library(data: bytes) -> SharedLibrary:
    """Return what is in the bytes of a shared library; raise ElfError for anything else."""
    return _guard(data, _read_library)


@dataclass(frozen=True)
class Executable:
    """What a program needs; a static one needs nothing."""

    is_x86_64: bool
    needed: tuple[str, ...]
    # As in `SharedLibrary`.
    glibc: tuple[int, ...]


def executable(data: bytes) -> Executable:
    """Return what is in the bytes of a program; raise ElfError for anything else."""
    return _guard(data, _read_executable)


def _guard(data: bytes, read: Callable[[bytes], _Found]) -> _Found:
    if data[:4] != b"\x7fELF":
        raise ElfError("it is not an ELF file")
    if data[4:6] != b"\x02\x01":
        raise ElfError("it is not for a 64-bit little-endian machine")
    try:
        return read(data)
    except ElfError:
        raise
    except Exception as error:  # noqa: BLE001 - seen: ELFError, OverflowError, AttributeError, AssertionError
        raise ElfError(f"it is damaged: {str(error) or type(error).__name__}") from None


def _read_executable(data: bytes) -> Executable:
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(data))
    is_x86_64 = file["e_machine"] == "EM_X86_64"
    kinds = {segment["p_type"] for segment in _bound_count(file.iter_segments(), len(data) // _RECORD_BYTES_MIN)}
    # A file without an interpreter is a static program, or a shared library if it has no entry point.
    if file["e_type"] not in {"ET_EXEC", "ET_DYN"} or not file["e_entry"]:
        raise ElfError("it is an ELF file, but not a program")
    if "PT_INTERP" not in kinds:
        return Executable(is_x86_64, (), (0,))
    facts = _tables(file, len(data))
    return Executable(is_x86_64, facts.needed, facts.glibc)


def _read_library(data: bytes) -> SharedLibrary:
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(data))
    if file["e_type"] != "ET_DYN":
        raise ElfError("it is an ELF file, but not a shared library")
    return _tables(file, len(data))


def _tables(file: ELFFile, size: int) -> SharedLibrary:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.gnuversions import GNUVerNeedSection
    from elftools.elf.sections import SymbolTableSection

    records_max = size // _RECORD_BYTES_MIN
    sections = {section["sh_type"]: section for section in _bound_count(file.iter_sections(), records_max)}
    dynamic, symbols, needs = map(sections.get, ("SHT_DYNAMIC", "SHT_DYNSYM", "SHT_GNU_verneed"))
    if not isinstance(dynamic, DynamicSection) or not isinstance(symbols, SymbolTableSection):
        raise ElfError("it has no table of dynamic symbols")
    tags = _bound_count(dynamic.iter_tags("DT_NEEDED"), records_max)
    names = _version_names(needs) if isinstance(needs, GNUVerNeedSection) else iter(())
    return SharedLibrary(
        file["e_machine"] == "EM_X86_64",
        tuple(tag.needed for tag in tags),  # type: ignore[attr-defined] # set on tags of this kind
        frozenset(
            symbol.name
            for symbol in _bound_count(symbols.iter_symbols(), records_max)
            if symbol["st_shndx"] != "SHN_UNDEF"
        ),
        max((_version(name) for name in _bound_count(names, records_max)), default=(0,)),
    )


def _version_names(needs: GNUVerNeedSection) -> Iterator[str]:
    for _, auxiliaries in needs.iter_versions():
        yield from (auxiliary.name for auxiliary in auxiliaries)


def _bound_count(records: Iterable[_Record], records_max: int) -> Iterator[_Record]:
    """Yield the records of a table; raise ElfError if there are more than the file has room for."""
    for number, record in enumerate(records):
        if number == records_max:
            raise ElfError("it is damaged: a table has more entries than fit into the file")
        yield record


def _version(name: str) -> tuple[int, ...]:
    parts = name.removeprefix(_GLIBC).split(".")
    is_glibc = name.startswith(_GLIBC) and all(part.isascii() and part.isdecimal() for part in parts)
    return tuple(map(int, parts)) if is_glibc else (0,)
