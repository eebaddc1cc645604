"""A shared library's needs and offers are read as the system's tools read them, and garbage is refused."""

from __future__ import annotations

import contextlib
import ctypes.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.host import processes
from rig.host.elf import ElfError, shared_library

# Needs a compiler.
pytestmark = pytest.mark.slow

SOURCE = """
#include <stdio.h>
int offered(void) { return puts(""); }
int withheld(void);
int calls(void) { return withheld(); }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "a.c").write_text(SOURCE)
    processes.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "a.so"), str(folder / "a.c"), "-lm"], timeout_s=60)
    processes.run(["gcc", "-c", "-fPIC", "-o", str(folder / "a.o"), str(folder / "a.c")], timeout_s=60)
    return folder / "a.so"


def test_a_library_tells_what_it_defines_and_needs(compiled: Path) -> None:
    found = shared_library(compiled.read_bytes())
    assert {"offered", "calls"} <= found.defined
    assert {"withheld", "puts"}.isdisjoint(found.defined)
    assert "libc.so.6" in found.needed
    assert found.is_x86_64 == (sys.maxsize > 2**32 and "x86_64" in processes.run(["uname", "-m"], timeout_s=5).decode())
    assert (2, 0) < found.glibc < (3, 0)


def test_what_is_no_shared_library_is_refused_by_what_it_is(compiled: Path) -> None:
    with pytest.raises(ElfError, match="not an ELF file"):
        shared_library(b"#!/bin/sh\n")
    with pytest.raises(ElfError, match="not a shared library"):
        shared_library(compiled.with_suffix(".o").read_bytes())
    with pytest.raises(ElfError, match="64-bit"):
        shared_library(b"\x7fELF\x01\x01" + bytes(100))


def test_a_library_for_another_machine_is_told(compiled: Path) -> None:
    data = bytearray(compiled.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    assert not shared_library(bytes(data)).is_x86_64


def section_header(data: bytearray, *, kind: int) -> int:
    """Return where the last section header of a kind begins."""
    begin, count = int.from_bytes(data[40:48], "little"), int.from_bytes(data[60:62], "little")
    headers = range(begin, begin + count * 64, 64)
    return [at for at in headers if kind == int.from_bytes(data[at + 4 : at + 8], "little")][-1]


def test_a_place_that_no_file_can_have_is_damage(compiled: Path) -> None:
    data = bytearray(compiled.read_bytes())
    names = section_header(data, kind=3)  # SHT_STRTAB; the names of the sections come last
    data[names + 24 : names + 32] = (1 << 63).to_bytes(8, "little")
    with pytest.raises(ElfError, match="it is damaged"):
        shared_library(bytes(data))


def test_a_table_that_leads_back_to_itself_is_damage(compiled: Path) -> None:
    """Four thousand million records, and each points to itself as the next."""
    data = bytearray(compiled.read_bytes())
    needs = section_header(data, kind=0x6FFFFFFE)  # SHT_GNU_verneed
    data[needs + 44 : needs + 48] = b"\xff" * 4
    first = int.from_bytes(data[needs + 24 : needs + 32], "little")
    data[first + 12 : first + 16] = bytes(4)
    with pytest.raises(ElfError, match="more entries than fit into the file"):
        shared_library(bytes(data))


@given(st.data())
def test_a_damaged_library_is_read_or_refused_and_never_anything_else(compiled: Path, data: st.DataObject) -> None:
    damaged = bytearray(compiled.read_bytes())
    # Headers and tables are at both ends.
    near = st.integers(0, 200) | st.integers(len(damaged) - 2000, len(damaged) - 1) | st.integers(0, len(damaged) - 1)
    for place, byte in data.draw(st.lists(st.tuples(near, st.integers(0, 255)), min_size=1, max_size=8)):
        damaged[place] = byte
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    with contextlib.suppress(ElfError):
        assert shared_library(bytes(damaged[:cut])).glibc


def test_the_c_library_of_this_machine_is_read_too() -> None:
    name = ctypes.util.find_library("m")
    assert name
    (path,) = [p for p in (Path("/lib/x86_64-linux-gnu", name), Path("/usr/lib64", name)) if p.exists()][:1]
    assert {"sin", "cos"} <= shared_library(path.read_bytes()).defined
