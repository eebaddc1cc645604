"""A damaged log is refused with a place, or all that is made of it takes memory for one device at most."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import Fault, LogError, LogFile, Logs, WriteLog, plan
from rig.faults.legality.legality import Checker, Rule
from rig.faults.log.log import DEVICE_BYTES_MAX
from tests.unit.faults.disks import ONE_DISK, rebuild_device
from tests.unit.faults.log.test_log import DISCARD, FLUSH, FUA, MARK, Entry, encode

# The disk of `tests.unit.faults.disks`.
DEVICE_BYTES = 32 * 512
PEAK_BYTES_MAX = 4 << 20


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bounds") / "log"


ENTRIES = [
    Entry(FUA, 24, 4, 1), Entry(0, 0, 16, 2), Entry(DISCARD, 0, 8), Entry(FLUSH), Entry(MARK, text="ack-1"),
    Entry(0, 8, 8, 3), Entry(DISCARD, 4, 8), Entry(FLUSH), Entry(0, 2, 4, 4), Entry(MARK, text="end"),
]  # fmt: skip
# Where the superblock and the header of each entry begin.
PLACES = [0, *(len(encode(ENTRIES[:count])) for count in range(len(ENTRIES)))]
numbers = st.one_of(st.sampled_from([0, 1, 31, 32, 33, 4294967295, 1 << 40, 1 << 51, 1 << 63]), st.integers(0, 64))


@settings(max_examples=100)
@given(
    damages=st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from([0, 8, 16, 24]), numbers), max_size=3),
    fault=st.sampled_from(ONE_DISK),
)
def test_a_damaged_log_is_refused_or_planned_within_bounded_memory(
    place: Path, damages: list[tuple[int, int, int]], fault: Fault
) -> None:
    content = bytearray(encode(ENTRIES))
    for at, field, number in damages:
        content[at + field : at + field + 8] = struct.pack("<Q", number)
    place.write_bytes(content)
    tracemalloc.start()
    try:
        error = use(LogFile(place, devices_bytes=(DEVICE_BYTES,)), fault)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < PEAK_BYTES_MAX
    if error is not None:
        assert str(place) in str(error)
        assert 0 <= error.offset_bytes <= len(content)


def use(file: LogFile, fault: Fault) -> LogError | None:
    """Plan, build and check states of a log; return the error if there was one."""
    try:
        with file.open() as logs:
            checker = Checker(logs.first, DEVICE_BYTES)
            for state in plan(fault, logs, first_entry=-1, states_max=12, seed=1).states:
                checker.check(rebuild_device(logs.first, state), state.instant, fault.rule or Rule.WHOLE)
    except LogError as error:
        return error
    return None


@pytest.mark.parametrize("flags", [0, FUA, DISCARD])
def test_an_entry_that_ends_after_its_device_is_refused_with_its_place(place: Path, flags: int) -> None:
    for sector, count, is_inside in ((30, 2, True), (30, 3, False), (32, 1, False), (0, 33, False)):
        place.write_bytes(encode([Entry(FLUSH), Entry(flags, sector, count)]))
        with WriteLog.open(place) as log:
            assert DEVICE_BYTES_MAX == log.device_bytes
        file = LogFile(place, devices_bytes=(DEVICE_BYTES,))
        if is_inside:
            with file.open() as logs:
                assert file == logs.file
            continue
        with pytest.raises(LogError, match=f"entry 1 .*device of {DEVICE_BYTES} bytes") as caught, file.open():
            pass
        assert (1, 1024) == (caught.value.entry_index, caught.value.offset_bytes)


def test_a_discard_of_two_tebibytes_costs_what_was_written_there(place: Path) -> None:
    """Where the size of the device is not known."""
    place.write_bytes(encode([Entry(0, 3, 2, 1), Entry(FLUSH), Entry(DISCARD, 1, 4294967295), Entry(FLUSH)]))
    with WriteLog.open(place) as log:
        tracemalloc.start()
        try:
            states = plan(Fault.DISCARD, Logs(log), first_entry=-1, states_max=40, seed=1).states
            (extent,) = next(state for state in states if state.damages).extents(log)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (3 * 512, bytes(1024)) == (extent.device_offset_bytes, extent.literal)
    assert peak_bytes < PEAK_BYTES_MAX
