"""The reader of dm-log-writes logs: it reads back what was written, and always reports damage."""

from __future__ import annotations

import contextlib
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import EntryFlag, LogError, Mark, StateIdError, WriteLog, base_extents, epochs, parse_state

FLUSH, FUA, DISCARD, MARK, METADATA = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Entry:
    flags: int
    sector: int = 0
    sector_count: int = 0
    fill: int = 0
    text: str = ""


def encode(entries: list[Entry], sector_bytes: int = 512, entry_count: int | None = None) -> bytes:
    count = len(entries) if entry_count is None else entry_count
    parts = [struct.pack("<QQQI", 0x6A736677736872, 1, count, sector_bytes).ljust(sector_bytes, b"\0")]
    for entry in entries:
        header = struct.pack("<QQQQ", entry.sector, entry.sector_count, entry.flags, len(entry.text))
        parts.append((header + entry.text.encode()).ljust(sector_bytes, b"\0"))
        if not entry.flags & (DISCARD | MARK):
            parts.append(bytes([entry.fill]) * (entry.sector_count * sector_bytes))
    return b"".join(parts)


writes = st.builds(
    Entry,
    st.sampled_from([0, FUA, METADATA, FUA | METADATA]),
    st.integers(0, 20),
    st.integers(1, 4),
    st.integers(0, 255),
)
tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
entry_lists = st.lists(
    st.one_of(
        writes,
        st.sampled_from([Entry(FLUSH), Entry(FLUSH | FUA)]),
        st.builds(Entry, st.just(DISCARD), st.integers(0, 20), st.integers(1, 1000)),
        st.builds(lambda text: Entry(MARK, text=text), tokens),
    ),
    max_size=12,
)
sector_sizes = st.sampled_from([512, 1024, 4096])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log"


@given(entries=entry_lists, sector_bytes=sector_sizes)
def test_every_entry_is_read_back_as_it_was_written(place: Path, entries: list[Entry], sector_bytes: int) -> None:
    data = encode(entries, sector_bytes)
    place.write_bytes(data)
    with WriteLog.open(place) as log:
        assert len(entries) == log.entry_count
        assert (sector_bytes, len(data)) == (log.sector_bytes, log.end_bytes)
        assert [entry.flags for entry in entries] == log.flags.tolist()
        assert [entry.sector * sector_bytes for entry in entries] == log.offset_bytes.tolist()
        assert [entry.sector_count * sector_bytes for entry in entries] == log.length_bytes.tolist()
        assert [Mark(i, e.text) for i, e in enumerate(entries) if e.flags & MARK] == list(log.marks)
        for index, entry in enumerate(entries):
            has_data = not entry.flags & (DISCARD | MARK)
            expected = bytes([entry.fill]) * (entry.sector_count * sector_bytes if has_data else 0)
            assert expected == bytes(log.payload(index))
            begin = int(log.payload_offset_bytes[index])
            assert expected == data[begin : begin + int(log.payload_bytes[index])]
            assert (begin == 0) is (expected == b"")


@given(entries=entry_lists, data=st.data())
def test_replay_and_base_extents_equal_writing_the_entries_one_by_one(
    place: Path, entries: list[Entry], data: st.DataObject
) -> None:
    place.write_bytes(encode(entries))
    upto = data.draw(st.integers(0, len(entries)))
    disk = bytearray(32 * 512)
    for entry in entries[:upto]:
        if not entry.flags & (DISCARD | MARK):
            begin, length = entry.sector * 512, entry.sector_count * 512
            disk[begin : begin + length] = bytes([entry.fill]) * length
    middle = data.draw(st.integers(0, upto))
    with WriteLog.open(place) as log:
        assert bytes(disk) == log.replay(upto, 32 * 512).tobytes()
        base, file = bytearray(32 * 512), place.read_bytes()
        for extent in base_extents(log, 0, middle) + base_extents(log, middle, upto):
            source = file[extent.source_offset_bytes : extent.source_offset_bytes + extent.length_bytes]
            base[extent.device_offset_bytes : extent.device_offset_bytes + extent.length_bytes] = source
        assert disk == base


def test_a_base_moves_past_a_write_that_is_repeated_around_another_without_it(place: Path) -> None:
    place.write_bytes(encode([Entry(0, 0, 2, 1), Entry(0, 1, 2, 2), Entry(0, 0, 2, 3)]))
    with WriteLog.open(place) as log:
        assert [512, 0] == [extent.device_offset_bytes for extent in base_extents(log, 0, 3)]


@settings(max_examples=300)
@given(entries=entry_lists, salvage=st.booleans(), data=st.data())
def test_damage_gives_a_log_error_or_a_log_that_can_be_used(
    place: Path, entries: list[Entry], salvage: bool, data: st.DataObject
) -> None:
    content = bytearray(encode(entries))
    # Damage mostly hits the superblock and the headers, seldom payloads.
    for _ in range(data.draw(st.integers(0, 4))):
        where = 512 * data.draw(st.integers(0, len(content) // 512 - 1)) + data.draw(st.integers(0, 40))
        content[where] = data.draw(st.sampled_from([0, 1, 2, 4, 7, 8, 16, 32, 128, 255]))
    place.write_bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    outcome = use(place, salvage=salvage)
    if outcome is not None:
        assert str(place) in str(outcome)
        assert 0 <= outcome.offset_bytes <= len(content)


def use(path: Path, *, salvage: bool) -> LogError | None:
    """Read all of a log; return the error if there was one."""
    try:
        with WriteLog.open(path, salvage=salvage) as log:
            lengths = [len(log.payload(index)) for index in range(log.entry_count)]
            assert lengths == log.payload_bytes.tolist()
            assert log.end_bytes <= path.stat().st_size
            epochs(log)
    except LogError as error:
        return error
    return None


def test_a_salvaged_log_goes_past_a_stale_entry_count_and_stops_at_the_first_damage(place: Path) -> None:
    entries = [Entry(0, 1, 2, 7), Entry(FLUSH), Entry(MARK, text="ack-1"), Entry(0, 3, 2, 9)]
    whole = encode(entries, entry_count=1)
    for cut, expected in ((0, 4), (1, 3), (1025, 3), (1536 + 1, 2), (1536 + 513, 1)):
        place.write_bytes(whole[: len(whole) - cut])
        with WriteLog.open(place, salvage=True) as log:
            assert expected == log.entry_count, f"{cut} bytes cut off"
    place.write_bytes(whole + bytes(4096))
    with WriteLog.open(place, salvage=True) as log:
        assert (4, len(whole)) == (log.entry_count, log.end_bytes)
    with WriteLog.open(place) as log:
        assert log.entry_count == 1


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"\x00", "magic"),
        (8, b"\x02", "version"),
        (24, struct.pack("<I", 768), "sectorsize"),
        (24, struct.pack("<I", 131072), "sectorsize"),
        (24, struct.pack("<I", 256), "sectorsize"),
        (16, b"\x09", "the file ends"),
        (24, struct.pack("<I", 65536), "the whole file"),
        (512 + 16, b"\x20", "flags"),
        (512 + 16, b"\x06", "DISCARD"),
        (512 + 16, b"\x0a", "MARK"),
        (512 + 15, b"\x7f", "not a place on a device"),
        (512 + 8, b"\xff", "ends after the file"),
        (512 + 8, b"\x00", "no sectors"),
        (512 * 3 + 24, struct.pack("<Q", 481), "does not fit"),
        (512 * 3 + 32, b" ", "ASCII token"),
    ],
)
def test_each_kind_of_damage_is_named_with_its_place(place: Path, offset: int, value: bytes, reason: str) -> None:
    content = bytearray(encode([Entry(FUA, 1, 1, 7), Entry(MARK, text="ack-1")]))
    content[offset : offset + len(value)] = value
    place.write_bytes(content)
    with pytest.raises(LogError, match=reason) as caught, WriteLog.open(place):
        pass
    expected_entry = None if offset < 512 and offset != 16 else {16: 2}.get(offset, 0 if offset < 1536 else 1)
    assert expected_entry == caught.value.entry_index


def test_a_mark_text_may_fill_its_sector(place: Path) -> None:
    place.write_bytes(encode([Entry(MARK, text="x" * 480)]))
    with WriteLog.open(place) as log:
        assert log.marks == (Mark(0, "x" * 480),)


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(512)])
def test_a_file_that_is_no_log_raises_a_log_error(place: Path, content: bytes) -> None:
    place.write_bytes(content)
    with pytest.raises(LogError), WriteLog.open(place, salvage=True):
        pass


def test_a_replay_that_leaves_the_device_names_the_entry(place: Path) -> None:
    place.write_bytes(encode([Entry(0, 0, 1, 1), Entry(0, 7, 2, 1)]))
    with WriteLog.open(place) as log, pytest.raises(LogError, match="entry 1 "):
        log.replay(2, 8 * 512)


@pytest.mark.parametrize(
    ("entries", "culprit"),
    [
        ([Entry(0, 0, 1), Entry(FUA, 1, 1), Entry(FLUSH)], 0),
        ([Entry(FLUSH), Entry(0, 0, 1), Entry(MARK, text="a"), Entry(FLUSH)], 1),
        ([Entry(DISCARD, 0, 1), Entry(MARK, text="a"), Entry(FLUSH)], 0),
        ([Entry(FLUSH | FUA, 0, 1)], 0),
        ([Entry(0, 0, 1), Entry(FLUSH, 0, 1)], 1),
    ],
)
def test_a_layout_that_the_kernel_does_not_write_is_refused(place: Path, entries: list[Entry], culprit: int) -> None:
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log, pytest.raises(LogError) as caught:
        epochs(log)
    assert culprit == caught.value.entry_index


def test_epochs_split_at_each_flush_and_the_tail_is_last(place: Path) -> None:
    entries = [
        Entry(FUA, 9, 1),
        Entry(MARK, text="a"),
        Entry(0, 0, 1),
        Entry(DISCARD, 5, 1),
        Entry(16, 1, 1),
        Entry(FLUSH),
    ]
    entries += [Entry(FLUSH | FUA), Entry(0, 0, 1), Entry(MARK, text="dm-log-writes-end")]
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log:
        found = [(e.number, e.begin, e.flush, e.end, e.fuas, e.batch) for e in epochs(log)]
    assert found == [(0, 0, 5, 5, (0,), (2, 4)), (1, 6, 6, 6, (), ()), (2, 7, None, 9, (), (7,))]


def test_a_write_whose_order_to_a_fua_is_open_makes_the_epochs_that_start_on_it_doubtful(place: Path) -> None:
    open_order = [Entry(FUA, 3, 1, 1), Entry(0, 3, 1, 2), Entry(FLUSH)]
    between, rewrite = [Entry(0, 9, 1, 5), Entry(FLUSH)], [Entry(0, 2, 2, 6), Entry(FLUSH), Entry(FLUSH)]
    place.write_bytes(encode(open_order + between + rewrite))
    with WriteLog.open(place) as log:
        found = [(e.ambiguous, e.doubtful) for e in epochs(log)]
    assert found == [((1,), False), ((), True), ((), True), ((), False), ((), False)]
    # Never rewritten: the self-check of the recording has shown the order. Same bytes: the order does not matter.
    for entries in (open_order + between, [Entry(FUA, 3, 1, 2), *open_order[1:], *between, *rewrite]):
        place.write_bytes(encode(entries))
        with WriteLog.open(place) as log:
            assert not any(e.ambiguous or e.doubtful for e in epochs(log))


@pytest.mark.parametrize(("rewritten", "ambiguous"), [(3, ()), (4, (2,))])
def test_a_sector_that_was_not_rewritten_orders_a_write_to_that_fua_and_earlier_ones_only(
    place: Path, rewritten: int, ambiguous: tuple[int, ...]
) -> None:
    entries = [Entry(FUA, 3, 1, 1), Entry(FUA, 4, 1, 2), Entry(0, 3, 2, 9), Entry(FLUSH), Entry(0, rewritten, 1, 7)]
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log:
        first, tail = epochs(log)
    assert ambiguous == first.ambiguous
    assert tail.doubtful is bool(ambiguous)


@pytest.mark.parametrize(("version", "ambiguous"), [(1, ()), (2, (3,))])
def test_a_write_of_the_bytes_of_the_last_fua_is_open_if_an_earlier_one_in_reach_differs(
    place: Path, version: int, ambiguous: tuple[int, ...]
) -> None:
    # Nothing rewrites the sector; yet it would end with these bytes had both FUA writes come after the write.
    place.write_bytes(encode([Entry(FUA, 3, 1, version), Entry(FLUSH), Entry(FUA, 3, 1, 1), Entry(0, 3, 1, 1)]))
    with WriteLog.open(place) as log:
        first, tail = epochs(log)
    assert ((), ambiguous) == (first.ambiguous, tail.ambiguous)


def test_no_epoch_is_doubtful_where_a_write_has_the_bytes_of_the_last_fua(place: Path) -> None:
    entries = [Entry(FUA, 3, 1, 2), Entry(FUA, 3, 1, 1), Entry(0, 3, 1, 1), Entry(FLUSH), Entry(0, 3, 1, 4)]
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log:
        first, tail = epochs(log)
    assert (2,) == first.ambiguous
    assert not tail.doubtful


id_parts = st.sampled_from(
    ["e3", "tail", ".f0", ".f1", ".w", "1", "2", "4", "-", ",", ".t", ":512:", ":4096:", "0", ".r", "p"]
)


@settings(max_examples=200)
@given(text=st.one_of(st.text(max_size=30), st.lists(id_parts, max_size=12).map("".join)))
def test_any_text_is_an_id_of_this_log_or_a_state_id_error(place: Path, text: str) -> None:
    entries = [Entry(FUA, 0, 4, 1), Entry(0, 4, 4, 2), Entry(0, 6, 4, 3), Entry(FLUSH), Entry(0, 9, 2, 3)]
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log, contextlib.suppress(StateIdError):
        assert text == parse_state(text, log, epochs(log)).id


ILLEGAL_IDS = {
    "more FUA writes than there are": ["e3.f2", "tail.f1"],
    "a batch before the last FUA": ["e3.f0.w1", "e3.f0.t1:512:0", "e3.f0.r0000000000000000p50"],
    "not of the batch": ["e3.f1.w0", "e3.f1.w9", "e3.f1.t0:512:0", "e3.f1.t9:512:0"],
    "another spelling": ["e3.f1.w2,1", "e3.f1.w1,2", "e3.f01", "e3.f1.t1:512:0-3", "e3.f1.r00000000000000000p50"],
    "landed twice": ["e3.f1.w1.t1:512:0", "e3.f1.t1:512:0.t1:512:1", "e3.f1.w1.r0000000000000000p50"],
    "no such unit": ["e3.f1.t1:1024:0", "e3.f1.t1:512:4", "e3.f1.r0000000000000000p50u256"],
    "no such percentage": ["e3.f1.r0000000000000000p0", "e3.f1.r0000000000000000p100"],
    "no such epoch": ["e2.f0"],
}


@pytest.mark.parametrize("text", [text for texts in ILLEGAL_IDS.values() for text in texts])
def test_an_id_of_no_legal_state_is_refused(place: Path, text: str) -> None:
    entries = [Entry(FUA, 0, 4, 1), Entry(0, 4, 4, 2), Entry(0, 6, 4, 3), Entry(FLUSH), Entry(0, 9, 2, 3)]
    place.write_bytes(encode(entries))
    with WriteLog.open(place) as log, pytest.raises(StateIdError):
        parse_state(text, log, epochs(log))


def test_a_hundred_thousand_entries_open_within_a_second(place: Path) -> None:
    header = np.zeros((100_000, 1024), dtype=np.uint8)
    header[:, :32] = np.frombuffer(struct.pack("<QQQQ", 5, 1, 0, 0), dtype=np.uint8)
    place.write_bytes(encode([], entry_count=100_000) + header.tobytes())
    # Of processor time, because other work shares the machine.
    begin = time.process_time()
    with WriteLog.open(place) as log:
        assert log.entry_count == 100_000
        assert not (log.flags & EntryFlag.FLUSH).any()
    elapsed_s = time.process_time() - begin
    place.unlink()
    # Twice the budget of half a second.
    assert elapsed_s < 1.0
