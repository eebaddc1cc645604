"""Crash states: what a disk may hold after a cut, as a base and an ordered choice of what else reached the medium.

The base is everything durable when the state's epoch starts: the replay of all entries before `base_end`. On top
come, in log order, the first FUA writes of the epoch, whole; then members of the batch, whole or torn; or, in place
of the batch, a part of the one FUA write that was in flight. A torn write is a set of its units: 512 or 4096 bytes,
aligned on the device, counted from the unit in which the write begins. Choosing, for each unit, the last member of
the batch that may own it is choosing its version, so an older version of a twice-written sector is a choice that
drops the newer write.

The id of a state, with the log, gives the state back. It is ASCII without blanks or slashes and safe in a shell:

    id     = epoch ".f" count [ ".w" ranges ] { tear } [ draw ]
    epoch  = "e" entry | "tail"              the FLUSH that closes the epoch, or the tail of the log
    count                                    how many FUA writes of the epoch landed whole, in log order
    ranges = range { "," range }             ascending; range = number | number "-" number
    ".w" ranges                              entries of the batch that landed whole
    tear   = ".t" entry ":" bytes ":" ranges the units of one entry that landed
    draw   = ".r" hex16 "p" percent [ "u" bytes ]   instead of .w and .t: a seeded draw, for batches too long to list

A draw lets the i-th member of the batch (with "u": the i-th unit of the batch, in log order) land iff the 64-bit
output of splitmix64 number i under that seed is below percent / 100 of its range. An id is accepted only in the
spelling that the state itself would give, so equal ids and equal choices are the same thing. Members of
`Epoch.ambiguous` never land.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from faults.epochs import Epoch
from faults.log import Int64Array, WriteLog

UNIT_BYTES = (512, 4096)


class StateIdError(Exception):
    """A text is not the id of a crash state of this log; the message says why."""


@dataclass(frozen=True)
class Extent:
    """A run of bytes to copy from the log file to the device; extents of a state are applied in order."""

    device_offset_bytes: int
    source_offset_bytes: int
    length_bytes: int


@dataclass(frozen=True)
class Tear:
    """The units of one write that reached the medium; ascending, 0 is the unit in which the write begins."""

    entry_index: int
    unit_bytes: int
    units: tuple[int, ...]


@dataclass(frozen=True)
class Draw:
    """A seeded random choice of batch members, or with `unit_bytes` of their units."""

    seed: int
    percent: int
    unit_bytes: int = 0

    def choose(self, count: int) -> NDArray[np.bool_]:
        """Return for each of `count` things whether it landed."""
        bits = splitmix64(np.uint64(self.seed) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        chosen: NDArray[np.bool_] = bits < np.uint64((self.percent << 64) // 100)
        return chosen


@dataclass(frozen=True)
class CrashState:
    """One legal content of the disk after a cut; equal iff the ids are equal, for states of one log."""

    id: str
    epoch: Epoch = field(compare=False, repr=False)
    fua_count: int = field(compare=False, repr=False)
    whole: tuple[int, ...] = field(compare=False, repr=False, default=())
    tears: tuple[Tear, ...] = field(compare=False, repr=False, default=())
    draw: Draw | None = field(compare=False, repr=False, default=None)

    @property
    def base_end(self) -> int:
        """Return the entry before which everything is durable."""
        return self.epoch.begin

    @property
    def instant(self) -> int:
        """Return the last entry just before whose completion a cut can leave this content; earlier marks were seen."""
        if self.fua_count == len(self.epoch.fuas):
            return self.epoch.end
        return self.epoch.fuas[self.fua_count]

    @property
    def unflushed_lost(self) -> bool:
        """Whether this is the plain state of its instant: every FUA before it, and nothing that was not flushed."""
        return not (self.whole or self.tears or self.draw)

    def pieces(self, log: WriteLog) -> Int64Array:
        """Return rows of (entry index, bytes to skip in its payload, length in bytes), in the order of application."""
        fuas = _whole_pieces(log, self.epoch.fuas[: self.fua_count])
        if self.draw is not None:
            return np.concatenate([fuas, _draw_pieces(log, landable(self.epoch), self.draw)])
        if not self.tears:
            return np.concatenate([fuas, _whole_pieces(log, self.whole)])
        parts = [_whole_pieces(log, [entry]) for entry in self.whole] + [_tear_pieces(log, t) for t in self.tears]
        entries = [*self.whole, *(tear.entry_index for tear in self.tears)]
        return np.concatenate([fuas, *(parts[rank] for rank in np.argsort(entries, kind="stable").tolist())])

    def extents(self, log: WriteLog) -> list[Extent]:
        """Return what to copy on top of the base, in order, neighbours joined."""
        return _extents(log, self.pieces(log))


def make_state(
    epoch: Epoch, fua_count: int, *, whole: Iterable[int] = (), tears: Iterable[Tear] = (), draw: Draw | None = None
) -> CrashState:
    """Build a state and its id. Choices are sorted; that they are legal is the caller's duty (`parse_state` checks)."""
    whole = tuple(sorted(whole))
    tears = tuple(sorted(tears, key=lambda tear: tear.entry_index))
    text = f"{'tail' if epoch.flush is None else f'e{epoch.flush}'}.f{fua_count}"
    if whole:
        text += f".w{_format_members(whole, landable(epoch))}"
    for tear in tears:
        text += f".t{tear.entry_index}:{tear.unit_bytes}:{_format_members(tear.units, range(tear.units[-1] + 1))}"
    if draw is not None:
        text += f".r{draw.seed:016x}p{draw.percent}" + (f"u{draw.unit_bytes}" if draw.unit_bytes else "")
    return CrashState(text, epoch, fua_count, whole, tears, draw)


def parse_state(text: str, log: WriteLog, log_epochs: Sequence[Epoch]) -> CrashState:
    """Rebuild the state that has this id; raise `StateIdError` if the log has no such state."""
    match = _ID.fullmatch(text)
    if match is None:
        raise StateIdError(f"{text[:80]!r} is not the id of a crash state; an id looks like e1043.f2.w1000-1010")
    epoch = _epoch_by_name(match["epoch"], log_epochs)
    members = landable(epoch)
    whole = _parse_members(match["whole"], members, text) if match["whole"] else ()
    tears = [_parse_tear(part, log, epoch, text) for part in match["tears"].split(".t")[1:]]
    draw = None
    if match["seed"]:
        draw = Draw(int(match["seed"], 16), int(match["percent"]), int(match["unit"] or 0))
    state = make_state(epoch, int(match["fuas"]), whole=whole, tears=tears, draw=draw)
    _check(state, text)
    return state


def landable(epoch: Epoch) -> tuple[int, ...]:
    """Return the members of the batch that a state may let land: all but those whose order is open."""
    if not epoch.ambiguous:
        return epoch.batch
    return tuple(entry for entry in epoch.batch if entry not in epoch.ambiguous)


def unit_count(log: WriteLog, entry_index: int, unit_bytes: int) -> int:
    """Return how many device-aligned units a write touches."""
    begin = int(log.offset_bytes[entry_index])
    return (begin + int(log.payload_bytes[entry_index]) - 1) // unit_bytes - begin // unit_bytes + 1


def base_extents(log: WriteLog, from_entry: int, to_entry: int) -> list[Extent]:
    """Return what moves a base from `from_entry` to `to_entry`; a write is left out if a later one has its place."""
    latest: dict[tuple[int, int], int] = {}
    for entry in (from_entry + np.flatnonzero(log.payload_bytes[from_entry:to_entry])).tolist():
        place = (int(log.offset_bytes[entry]), int(log.payload_bytes[entry]))
        latest.pop(place, None)
        latest[place] = entry
    return _extents(log, _whole_pieces(log, list(latest.values())))


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 output for each state in `values` (Steele, Lea, Flood: Fast Splittable PRNGs, 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _whole_pieces(log: WriteLog, entries: Sequence[int]) -> Int64Array:
    rows = np.zeros((len(entries), 3), dtype=np.int64)
    rows[:, 0] = entries
    rows[:, 2] = log.payload_bytes[rows[:, 0]]
    return rows


def _unit_pieces(log: WriteLog, entries: Sequence[int], unit_bytes: int) -> Int64Array:
    """Cut writes into their units: one row for each unit of each entry."""
    indices = np.array(entries, dtype=np.int64)
    begins = log.offset_bytes[indices]
    first_units = begins // unit_bytes
    counts = (begins + log.payload_bytes[indices] - 1) // unit_bytes - first_units + 1
    owner = np.repeat(np.arange(len(indices)), counts)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    unit_begins = (first_units[owner] + rank) * unit_bytes - begins[owner]
    skips = np.maximum(unit_begins, 0)
    lengths = np.minimum(unit_begins + unit_bytes, log.payload_bytes[indices][owner]) - skips
    return np.stack([indices[owner], skips, lengths], axis=1)


def _tear_pieces(log: WriteLog, tear: Tear) -> Int64Array:
    return _unit_pieces(log, [tear.entry_index], tear.unit_bytes)[list(tear.units)]


def _draw_pieces(log: WriteLog, members: Sequence[int], draw: Draw) -> Int64Array:
    things = _unit_pieces(log, members, draw.unit_bytes) if draw.unit_bytes else _whole_pieces(log, members)
    return things[draw.choose(len(things))]


def _extents(log: WriteLog, pieces: Int64Array) -> list[Extent]:
    device = log.offset_bytes[pieces[:, 0]] + pieces[:, 1]
    source = log.payload_offset_bytes[pieces[:, 0]] + pieces[:, 1]
    length = pieces[:, 2]
    starts = np.ones(len(pieces), dtype=bool)
    starts[1:] = (device[1:] != device[:-1] + length[:-1]) | (source[1:] != source[:-1] + length[:-1])
    first = np.flatnonzero(starts)
    joined = np.add.reduceat(length, first) if len(first) else length
    rows = zip(device[first].tolist(), source[first].tolist(), joined.tolist(), strict=True)
    return [Extent(*row) for row in rows]


_RANGE = r"\d{1,18}(?:-\d{1,18})?"
_RANGES = rf"{_RANGE}(?:,{_RANGE})*"
_ID = re.compile(
    r"(?P<epoch>e\d{1,18}|tail)\.f(?P<fuas>\d{1,18})"
    rf"(?:\.w(?P<whole>{_RANGES}))?(?P<tears>(?:\.t\d{{1,18}}:\d{{1,6}}:{_RANGES})*)"
    r"(?:\.r(?P<seed>[0-9a-f]{16})p(?P<percent>\d{1,3})(?:u(?P<unit>\d{1,6}))?)?",
    re.ASCII,
)


def _format_members(chosen: Iterable[int], members: Sequence[int]) -> str:
    """Write chosen members as ranges; `a-b` stands for all members from a to b."""
    ranks = np.searchsorted(np.asarray(members), np.fromiter(chosen, dtype=np.int64))
    breaks = np.flatnonzero(np.diff(ranks) != 1) + 1
    runs = [(members[run[0]], members[run[-1]]) for run in np.split(ranks, breaks)]
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _parse_members(ranges: str, members: Sequence[int], text: str) -> tuple[int, ...]:
    chosen: list[int] = []
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        run = members[bisect_left(members, int(low)) : bisect_right(members, int(high or low))]
        if not run or (chosen and run[0] <= chosen[-1]):
            raise StateIdError(f"{text[:80]!r}: {part} names nothing that can land here, or is out of order")
        chosen.extend(run)
    return tuple(chosen)


def _parse_tear(part: str, log: WriteLog, epoch: Epoch, text: str) -> Tear:
    entry_text, unit_text, ranges = part.split(":")
    entry, unit_bytes = int(entry_text), int(unit_text)
    if unit_bytes not in UNIT_BYTES or not (entry in epoch.batch or entry in epoch.fuas):
        raise StateIdError(f"{text[:80]!r}: no write {entry} in this epoch, or no unit of {unit_bytes} bytes")
    units = range(unit_count(log, entry, unit_bytes))
    tear = Tear(entry, unit_bytes, _parse_members(ranges, units, text))
    if len(tear.units) == len(units):
        raise StateIdError(f"{text[:80]!r}: all units of entry {entry} landed, so it is whole and not torn")
    return tear


def _epoch_by_name(name: str, log_epochs: Sequence[Epoch]) -> Epoch:
    flush = None if name == "tail" else int(name[1:])
    for epoch in log_epochs:
        if epoch.flush == flush:
            return epoch
    raise StateIdError(f"the log has no epoch {name}: no FLUSH stands at that entry")


def _check(state: CrashState, text: str) -> None:
    fuas, torn = state.epoch.fuas, [tear.entry_index for tear in state.tears]
    if state.fua_count > len(fuas):
        raise StateIdError(f"{text[:80]!r}: the epoch has {len(fuas)} FUA writes")
    if state.fua_count < len(fuas):
        legal = not state.whole and state.draw is None and torn in ([], [fuas[state.fua_count]])
    else:
        legal = set(torn) <= set(landable(state.epoch)) - set(state.whole) and len(set(torn)) == len(torn)
    if not legal:
        raise StateIdError(f"{text[:80]!r}: no cut of an honest disk leaves this choice of writes")
    draw = state.draw
    if draw is not None and (
        not 0 < draw.percent < 100 or draw.unit_bytes not in (0, *UNIT_BYTES) or state.whole or state.tears
    ):
        raise StateIdError(f"{text[:80]!r}: a draw has 1 to 99 percent, units of 512 or 4096, and stands alone")
    if state.id != text:
        raise StateIdError(f"{text[:80]!r} is spelled {state.id[:80]!r}")
