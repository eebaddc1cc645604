"""Whether a damage can happen to a state: ids come from users, so each is checked before it is rebuilt."""

from __future__ import annotations

from itertools import pairwise

from rig.faults.log.extents import overlaps
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, WriteLog
from rig.faults.states.damage import (
    LENGTH_BYTES_MAX,
    Astray,
    Damage,
    Discarded,
    Flip,
    Garbage,
    Unreadable,
    Zeros,
    block_rests,
    device_end,
    discard_unit_count,
    may_be_covered,
)
from rig.faults.states.state import UNIT_BYTES, CrashState


def complaint(damage: Damage, log: WriteLog, state: CrashState) -> str:
    """Return why a damage cannot happen to a state, or an empty text."""
    match damage:
        case Flip(offset_bytes, length_bytes, bit_count, _):
            bad_count = not 0 < bit_count <= 8 * length_bytes
            return "no such number of bits" if bad_count else _bad_range(log, offset_bytes, length_bytes)
        case Zeros(offset_bytes, length_bytes) | Unreadable(offset_bytes, length_bytes):
            return _bad_range(log, offset_bytes, length_bytes)
        case Astray():
            return _bad_astray(damage, log, state)
        case Discarded(entry, _, _):
            limit = state.epoch.end if state.fua_count == len(state.epoch.fuas) else state.epoch.begin
            if state.tears or (state.draw and state.draw.unit_bytes):
                return "a discard takes effect only beside whole writes"
            had_completed = state.window is None and entry < limit and bool(log.flags[entry] & EntryFlag.DISCARD)
            return _bad_units(damage, log) if had_completed else "no such DISCARD had completed"
        case Garbage():
            return _bad_garbage(damage, log, state)


def _bad_range(log: WriteLog, offset_bytes: int, length_bytes: int) -> str:
    if offset_bytes % SECTOR_BYTES or length_bytes % SECTOR_BYTES or not 0 < length_bytes <= LENGTH_BYTES_MAX:
        return f"a range is whole sectors of {SECTOR_BYTES} bytes, at most {LENGTH_BYTES_MAX} bytes"
    return "the range ends after the last block ever written" if offset_bytes + length_bytes > device_end(log) else ""


def _bad_units(damage: Discarded, log: WriteLog) -> str:
    """Return what is wrong with the units of a DISCARD that took effect in part, or an empty text."""
    if not damage.unit_bytes:
        return ""
    if damage.unit_bytes not in UNIT_BYTES:
        return f"no unit of {damage.unit_bytes} bytes"
    bounds = [-1, *(bound for part in damage.units for bound in (part.start, part.stop))]
    is_ascending = all(low < high for low, high in pairwise(bounds))
    is_inside = bounds[-1] <= discard_unit_count(log, damage.entry_index, damage.unit_bytes)
    return "" if is_ascending and is_inside else "no such units of the DISCARD, or not ascending with gaps in between"


def _bad_astray(damage: Astray, log: WriteLog, state: CrashState) -> str:
    if state.window is None or damage.entry_index not in state.window.members or state.draw is not None:
        return "the write belongs to no window of this state, or the state is a draw"
    if damage.entry_index in state.whole:
        return "the write landed at its place"
    length_bytes = int(log.payload_bytes[damage.entry_index])
    # A write that completed later would have covered the stray one, and the log does not always tell their order.
    if overlaps(log, state.window.members, damage.offset_bytes, length_bytes):
        return "the place belongs to a write of the window"
    return _bad_range(log, damage.offset_bytes, length_bytes)


def _bad_garbage(damage: Garbage, log: WriteLog, state: CrashState) -> str:
    units = [tear.units for tear in state.tears if (tear.entry_index, tear.unit_bytes) == (damage.entry_index, 512)]
    if not units or len(state.damages) != 1:
        return "garbage needs exactly one interrupted write, torn in units of 512 bytes"
    if may_be_covered(damage, log, state.epoch):
        return "a FUA write of that place may have come later, and would have covered the garbage for good"
    if (damage.first_sector, damage.sector_count) not in block_rests(log, damage.entry_index):
        return "the garbage is not the rest of one of the write's blocks after its first sectors"
    begin, end = damage.first_sector, damage.first_sector + damage.sector_count
    block_begin = max(0, end - 1 - (int(log.offset_bytes[damage.entry_index]) // SECTOR_BYTES + end - 1) % 8)
    if not set(range(block_begin, begin)) <= set(units[0]) or set(range(begin, end)) & set(units[0]):
        return "a shorn block must be new up to its garbage"
    return ""
