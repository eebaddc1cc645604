"""What parts of the files of other engines are called, on files that follow their documented layouts."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.engines import engine_named, engines
from rig.engines.logrecords import BLOCK_BYTES, parts, records_between
from rig.engines.roles import FileRoles, ReadFile, roles_of

_LENGTHS = st.lists(st.integers(0, 3 * BLOCK_BYTES), min_size=1, max_size=8)
ENGINES = [engine.name for engine in engines() if roles_of(engine)]


def of(name: str) -> FileRoles:
    roles = roles_of(engine_named(name))
    assert roles
    return roles


def reader(data: bytes) -> ReadFile:
    return lambda _, offset, length: data[offset : offset + length]


def log_of(lengths: list[int], *, number: bytes = b"") -> bytes:
    """Write records of these lengths as the stores do."""
    log = bytearray()
    header, shift = 7 + len(number), 4 if number else 0
    for length in lengths:
        left, is_first = length, True
        while True:
            room = BLOCK_BYTES - len(log) % BLOCK_BYTES
            if room < header:
                log += bytes(room)
                room = BLOCK_BYTES
            size = min(left, room - header)
            is_last = size == left
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[is_first, is_last]
            payload = bytes(size)
            log += struct.pack("<IHB", zlib.crc32(payload), size, kind + shift) + number + payload
            left, is_first = left - size, False
            if is_last:
                break
    return bytes(log)


@given(_LENGTHS, st.booleans())
def test_every_record_of_a_log_is_found_with_its_number(lengths: list[int], is_numbered: bool) -> None:
    log = log_of(lengths, number=b"1234" if is_numbered else b"")
    found = list(parts(log))
    assert len(lengths) == found[-1].rank
    assert len(lengths) == sum(part.part in {"whole", "last part of"} for part in found)
    for part in found:
        assert str(part.rank) in records_between(log, part.begin, part.end)


def test_a_place_after_the_last_record_has_none() -> None:
    log = log_of([10, 20])
    assert "place without a record" == records_between(log + bytes(100), len(log), len(log) + 100)
    assert "record 1 and record 2" == records_between(log, 0, len(log))


def test_a_meta_page_has_its_transaction_and_other_pages_their_kind() -> None:
    file = bytearray(4 * 4096)
    struct.pack_into("<I", file, 16 + 24, 4096)
    struct.pack_into("<Q", file, 16 + 24 + 2 * 48 + 8, 77)
    struct.pack_into("<H", file, 2 * 4096 + 10, 2)
    role = of("lmdb").role
    assert "meta page 0 (transaction 77)" == role("data.mdb", 0, 4096, reader(bytes(file)))
    assert "page 2 (leaf of a tree)" == role("data.mdb", 2 * 4096, 4096, reader(bytes(file)))
    assert "" == role("lock.mdb", 0, 4096, reader(bytes(file)))


def test_a_page_of_the_wal_has_its_position_and_a_block_the_last_change() -> None:
    role, page = of("postgresql").role, bytearray(8192)
    struct.pack_into("<Q", page, 8, 0x1_0200_0000)
    assert "page of the WAL at 1/2000000" == role("pg_wal/00000001" + "0" * 16, 0, 4096, reader(bytes(page)))
    struct.pack_into("<II", page, 0, 1, 0x20)
    assert "block 0 (changed at 1/20) of the relation 16384" == role("base/5/16384", 0, 4096, reader(bytes(page)))
    assert "control file" == role("global/pg_control", 0, 512, reader(b""))


def test_pages_of_the_doublewrite_buffer_are_told_from_those_of_a_table() -> None:
    role, file = of("mariadb").role, bytearray(80 * 16384)
    struct.pack_into(">III", file, 6 * 16384 - 190, 536853855, 64, 128)
    struct.pack_into(">H", file, 3 * 16384 + 24, 17855)
    assert "page 64 (doublewrite buffer)" == role("ibdata1", 64 * 16384, 16384, reader(bytes(file)))
    assert "page 3 (index)" == role("test/entries.ibd", 3 * 16384, 4096, reader(bytes(file)))
    assert "second checkpoint of the redo log" == role("ib_logfile0", 8192, 512, reader(b""))
    assert "redo log" == role("ib_logfile0", 1 << 20, 512, reader(b""))


@pytest.mark.parametrize("name", ENGINES)
@given(
    st.sampled_from([
        "ibdata1", "a/b.ibd", "ib_logfile0", "000003.log", "MANIFEST-000002", "CURRENT", "data.mdb", "test.db",
        "pg_wal/" + "0" * 24, "base/5/16384_fsm.1", "other",
    ]), st.binary(max_size=400), st.integers(0, 1 << 20), st.integers(1, 1 << 14),
)  # fmt: skip
def test_no_garbage_is_an_error(name: str, path: str, data: bytes, begin: int, length: int) -> None:
    assert isinstance(of(name).role(path, begin, length, reader(data)), str)
