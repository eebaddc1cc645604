"""Crash states: what a disk may hold after a cut, as a base and an ordered choice of what else reached the medium.

The base is everything durable when the state's epoch starts: the replay of all entries before `base_end`. On top come,
in log order, the first FUA writes of the epoch, whole; then members of the batch, whole or torn; or, instead of the
batch, a part of the one FUA write that was in flight. Where it is known when writes were submitted, other writes may
have landed ahead (`rig.faults.log.ahead`). A torn write is a set of its units: 512 or 4096 bytes, aligned on the
device, counted from the unit in which the write begins. A unit has the version of the last member that landed there, so
a choice that drops the newer of two writes keeps the older version.

A disk that lies has a `Window` instead of an epoch: it ignored the last FLUSHes before the cut, so the base ends where
the window begins, and any later write, FUA or not, landed or did not. Damages (`rig.faults.states.damage`) come last.

A state is judged at its instant: the latest entry such that a cut just before its completion can leave this state, or
an earlier one if the fault model can vouch for no later. `rig.faults.states.addresses` defines and parses a state's id.
Members of `Epoch.ambiguous` land only where the log tells what they leave (`is_told`), and never on a disk that lies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rig.faults.log.arrays import Int64Array
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import Extent, base_extents, extents_of, read, unit_pieces, whole_pieces
from rig.faults.log.log import SECTOR_BYTES, WriteLog
from rig.faults.states.damage import Damage, Unreadable, damage_extents

UNIT_BYTES = (512, 4096)


@dataclass(frozen=True)
class Tear:
    """The units of one write that reached the medium; ascending, 0 is the unit in which the write begins."""

    entry_index: int
    unit_bytes: int
    units: tuple[int, ...]


@dataclass(frozen=True)
class Draw:
    """A seeded random choice of batch members or, with `unit_bytes`, of their units."""

    seed: int
    percent: int
    unit_bytes: int = 0

    def choose(self, count: int) -> NDArray[np.bool_]:
        """Return for each of `count` members or units whether it landed."""
        bits = splitmix64(np.uint64(self.seed) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        chosen: NDArray[np.bool_] = bits < np.uint64((self.percent << 64) // 100)
        return chosen


@dataclass(frozen=True)
class Window:
    """The epochs whose FLUSHes a lying disk ignored, the epoch of the cut last: nothing in them is durable."""

    epochs: tuple[Epoch, ...]
    # The writes that may have landed, in log order: FUA writes and batches, without members whose order is open.
    members: tuple[int, ...]

    @property
    def begin(self) -> int:
        """Return the entry before which everything is durable."""
        return self.epochs[0].begin

    @property
    def flushes_ignored(self) -> int:
        """Return how many FLUSHes completed without effect; 0 if only FUA writes were ignored."""
        return len(self.epochs) - 1


@dataclass(frozen=True)
class CrashState:
    """One content of the disk after a cut; equal iff the ids are equal, for states of one log."""

    id: str
    # The epoch of the cut.
    epoch: Epoch = field(compare=False, repr=False)
    fua_count: int = field(compare=False, repr=False)
    whole: tuple[int, ...] = field(compare=False, repr=False, default=())
    # Writes that landed whole ahead of the cut, see `Epoch.ahead`.
    ahead: tuple[int, ...] = field(compare=False, repr=False, default=())
    tears: tuple[Tear, ...] = field(compare=False, repr=False, default=())
    draw: Draw | None = field(compare=False, repr=False, default=None)
    window: Window | None = field(compare=False, repr=False, default=None)
    # The instant, if it is not the latest at which a cut can leave this content.
    cut_at: int | None = field(compare=False, repr=False, default=None)
    damages: tuple[Damage, ...] = field(compare=False, repr=False, default=())

    @property
    def base_end(self) -> int:
        """Return the entry before which everything is durable."""
        return self.window.begin if self.window else self.epoch.begin

    @property
    def instant(self) -> int:
        """Return the entry just before which the state is judged; earlier marks were seen."""
        return self.latest_instant if self.cut_at is None else self.cut_at

    @property
    def latest_instant(self) -> int:
        """Return the latest instant at which a cut can leave this choice of writes."""
        if self.window or self.fua_count == len(self.epoch.fuas):
            return self.epoch.end
        return self.epoch.fuas[self.fua_count]

    @property
    def unflushed_lost(self) -> bool:
        """Whether this is the plain state of its instant: every FUA before it, and nothing that was not flushed."""
        return not (self.whole or self.ahead or self.tears or self.draw or self.window or self.damages)

    @property
    def unreadable(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of the device that cannot be read, as (offset, length) in bytes."""
        return tuple(
            (damage.offset_bytes, damage.length_bytes) for damage in self.damages if isinstance(damage, Unreadable)
        )

    @property
    def is_apart(self) -> bool:
        """Whether the state is one of two disks that surely died at different instants."""
        return False

    @property
    def holds(self) -> str:
        """Return the kinds of damage in the content, in words of `Holds`; empty for none."""
        return "+".join(sorted({damage.holds for damage in self.damages}))

    @property
    def base_text(self) -> str:
        """Return the base in words."""
        return f"all {self.base_end} entries before the epoch"

    def advance(self, log: WriteLog, from_base: int) -> list[Extent]:
        """Return what moves a base from the `base_end` of an earlier state, or from an empty disk (0), to this one."""
        return base_extents(log, from_base, self.base_end)

    def pieces(self, log: WriteLog) -> Int64Array:
        """Return rows of (entry index, bytes to skip in its payload, length in bytes), in the order of application."""
        fuas = whole_pieces(log, self.epoch.fuas[: self.fua_count])
        if self.draw is not None:
            members = self.window.members if self.window else landable(self.epoch)
            return np.concatenate([fuas, _draw_pieces(log, members, self.draw)])
        if not (self.tears or self.ahead):
            return np.concatenate([fuas, whole_pieces(log, self.whole)])
        whole = (*self.whole, *self.ahead)
        parts = [whole_pieces(log, [entry]) for entry in whole] + [_tear_pieces(log, t) for t in self.tears]
        entries = [*whole, *(tear.entry_index for tear in self.tears)]
        # A FUA write is in the log ahead of ordinary writes that completed before it.
        order = log.account.completed[entries] if log.account else entries
        return np.concatenate([fuas, *(parts[rank] for rank in np.argsort(order, kind="stable").tolist())])

    def extents(self, log: WriteLog) -> list[Extent]:
        """Return what to put on top of the base, in order, neighbours joined."""
        return extents_of(log, self.pieces(log)) + self.damage_extents(log)

    def damage_extents(self, log: WriteLog) -> list[Extent]:
        """Return what the damages put on top of base and pieces, in order."""
        read = partial(self.read, log)
        held = partial(self._entries_held, log)
        return [extent for damage in self.damages for extent in damage_extents(damage, log, read, self.epoch.end, held)]

    def _entries_held(self, log: WriteLog) -> Int64Array:
        """Return the entries that have landed, durable ones too."""
        return np.concatenate([np.arange(self.base_end), self.pieces(log)[:, 0]])

    def read(self, log: WriteLog, offset_bytes: int, length_bytes: int) -> bytes:
        """Return a range of the device without the damages."""
        return read(log, self.base_end, self.pieces(log), offset_bytes, length_bytes)


def make_state(
    epoch: Epoch,
    fua_count: int,
    *,
    whole: Iterable[int] = (),
    ahead: Iterable[int] = (),
    tears: Iterable[Tear] = (),
    draw: Draw | None = None,
    cut_at: int | None = None,
    damages: tuple[Damage, ...] = (),
) -> CrashState:
    """Build a state and its id, choices sorted; the caller must ensure that they are legal (`parse_state` checks)."""
    whole, ahead = tuple(sorted(whole)), tuple(sorted(ahead))
    tears = tuple(sorted(tears, key=lambda tear: tear.entry_index))
    text = f"{_name(epoch)}.f{fua_count}"
    if unordered := tuple(entry for entry in whole if entry in epoch.ambiguous):
        text += _choice_text(tuple(entry for entry in whole if entry not in unordered), landable(epoch))
        text += f".o{_format_members(unordered, epoch.ambiguous)}"
    else:
        text += _choice_text(whole, landable(epoch))
    if ahead:
        text += f".a{_format_members(ahead, epoch.ahead_at(fua_count))}"
    for tear in tears:
        text += f".t{tear.entry_index}:{tear.unit_bytes}:{_format_members(tear.units, range(tear.units[-1] + 1))}"
    text += _tail_text(draw, cut_at, damages)
    return CrashState(text, epoch, fua_count, whole, ahead, tears, draw, None, cut_at, damages)


def make_lying_state(
    window: Window, *, whole: Iterable[int] = (), draw: Draw | None = None, damages: tuple[Damage, ...] = ()
) -> CrashState:
    """Build a state of a disk that ignored the FLUSHes of a window, and its id."""
    whole = tuple(sorted(whole))
    epoch = window.epochs[-1]
    text = f"{_name(epoch)}.l{window.flushes_ignored}" + _choice_text(whole, window.members)
    text += _tail_text(draw, None, damages)
    return CrashState(text, epoch, 0, whole, (), (), draw, window, None, damages)


def everything_unflushed_lost(log: WriteLog, log_epochs: Sequence[Epoch], entry: int) -> CrashState:
    """Return what is left if the power goes just before log entry `entry` completes and the whole cache is lost.

    Raise `ValueError` for an entry after the end of the log. In a doubtful epoch the state follows log order, unproven.
    """
    if not 0 <= entry <= log.entry_count:
        raise ValueError(f"entry {entry} is not in this log, which has {log.entry_count} entries")
    epoch = log_epochs[bisect_left(log_epochs, entry, key=lambda epoch: epoch.end)]
    return make_state(epoch, bisect_left(epoch.fuas, entry))


def window_of(log_epochs: Sequence[Epoch], epoch: Epoch, flushes_ignored: int) -> Window:
    """Return the window of a cut in `epoch`; raise `ValueError` if fewer FLUSHes had completed."""
    if not 0 <= flushes_ignored <= epoch.number:
        raise ValueError(f"{flushes_ignored} FLUSHes ignored, but {epoch.number} completed before the cut")
    epochs = tuple(log_epochs[epoch.number - flushes_ignored : epoch.number + 1])
    members = sorted(entry for member_epoch in epochs for entry in (*member_epoch.fuas, *landable(member_epoch)))
    return Window(epochs, tuple(members))


def is_told(log: WriteLog, state: CrashState) -> bool:
    """Whether the log tells the content of a state, whichever order its writes had where the log leaves it open."""
    epoch = state.epoch
    if state.window is not None:
        return not state.window.epochs[0].doubtful
    if not epoch.open_sectors:
        return True
    pieces = state.pieces(log)
    begins = log.offset_bytes[pieces[:, 0]] + pieces[:, 1]
    for open_sector in epoch.open_sectors:
        place = open_sector.sector * SECTOR_BYTES
        landed: list[int] = pieces[(begins <= place) & (begins + pieces[:, 2] > place), 0].tolist()
        is_last = landed[-1:] == [open_sector.writer] if open_sector.writer >= epoch.begin else not landed
        if is_last and not open_sector.is_alike:
            return False
    return True


def landable(epoch: Epoch) -> tuple[int, ...]:
    """Return the members of the batch that may land in any state: all but those whose order is open."""
    if not epoch.ambiguous:
        return epoch.batch
    return tuple(entry for entry in epoch.batch if entry not in epoch.ambiguous)


def settled_prefix(epoch: Epoch) -> tuple[int, ...]:
    """Return the members of the batch before the first whose order is open: the longest prefix that is known."""
    return epoch.batch[: epoch.batch.index(epoch.ambiguous[0])] if epoch.ambiguous else epoch.batch


def whole_counts(log: WriteLog, members: Sequence[int]) -> list[int]:
    """Return the counts for which the first members are whole writes with all of their parts; 0 is such a count."""
    return [0, *(rank for rank, entry in enumerate(members, start=1) if log.ends_write[entry])]


def unit_count(log: WriteLog, entry_index: int, unit_bytes: int) -> int:
    """Return how many device-aligned units a write touches."""
    begin = int(log.offset_bytes[entry_index])
    return (begin + int(log.payload_bytes[entry_index]) - 1) // unit_bytes - begin // unit_bytes + 1


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 output for each state in `values` (Steele, Lea, Flood: Fast Splittable PRNGs, 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _tear_pieces(log: WriteLog, tear: Tear) -> Int64Array:
    return unit_pieces(log, [tear.entry_index], tear.unit_bytes)[list(tear.units)]


def _draw_pieces(log: WriteLog, members: Sequence[int], draw: Draw) -> Int64Array:
    things = unit_pieces(log, members, draw.unit_bytes) if draw.unit_bytes else whole_pieces(log, members)
    return things[draw.choose(len(things))]


def _name(epoch: Epoch) -> str:
    return "tail" if epoch.flush is None else f"e{epoch.flush}"


def _choice_text(whole: tuple[int, ...], members: Sequence[int]) -> str:
    return f".w{_format_members(whole, members)}" if whole else ""


def _tail_text(draw: Draw | None, cut_at: int | None, damages: tuple[Damage, ...]) -> str:
    text = ""
    if draw is not None:
        text += f".r{draw.seed:016x}p{draw.percent}" + (f"u{draw.unit_bytes}" if draw.unit_bytes else "")
    if cut_at is not None:
        text += f".i{cut_at}"
    return text + "".join(damage.text for damage in damages)


def _format_members(chosen: Iterable[int], members: Sequence[int]) -> str:
    """Write chosen members as ranges; `a-b` stands for all members from a to b."""
    ranks = {member: rank for rank, member in enumerate(members)}
    runs: list[list[int]] = []
    for member in chosen:
        if runs and ranks[member] == ranks[runs[-1][1]] + 1:
            runs[-1][1] = member
        else:
            runs.append([member, member])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
