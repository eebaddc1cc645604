"""The writes that one cut leaves open: each may have landed or be lost, and every choice of them is a crash state.

Of an honest disk these are the writes of the batch, at the end of an epoch, and those that were ahead of the cut; of a
disk that lied, all writes since the first FLUSH that it ignored. A write is one atom. If the explained state tore it,
each of its units is an atom. Everything else of the explained state stays: its damages, and the instant at which it is
judged, if that is not the latest.

The FUA write that comes after the cut can be a choice too. With it everything is as after the next cut.

Of two disks the writes of the one that died later are open. The other has lost all that was not flushed, as
`rig.faults.models.twodisk` says.

Left out: the writes whose order to a FUA write the log leaves open, unless the explained state has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rig.faults import CrashState, DiskLetter, Epoch, JointState, Logs, Tear, WriteLog
from rig.faults.log.extents import unit_pieces, whole_pieces
from rig.faults.states.damage import Damage
from rig.faults.states.state import Window, landable, make_lying_state, make_state, unit_count

WHOLE = -1


class Atom(NamedTuple):
    """A write, or one unit of a write that is taken apart; `unit` counts from the write's first unit."""

    entry: int
    unit: int = WHOLE


@dataclass(frozen=True)
class Choices:
    """The atoms of one cut; `units` has the size of the units of each entry that is taken apart.

    `has_next` says that the next FUA write of the epoch is one of them.
    """

    logs: Logs
    epoch: Epoch
    fua_count: int
    units: tuple[tuple[int, int], ...] = ()
    extra: tuple[int, ...] = ()
    window: Window | None = None
    damages: tuple[Damage, ...] = ()
    cut_at: int | None = None
    has_next: bool = False
    # The disk whose writes they are, and whose log has the epoch.
    disk: DiskLetter = DiskLetter.A

    @classmethod
    def at_border(cls, logs: Logs, epoch: Epoch, fua_count: int) -> Choices:
        """Return what lies between the cut after this many FUA writes of an epoch of the first log and the next cut."""
        return cls(logs, epoch, fua_count, has_next=fua_count < len(epoch.fuas))

    @classmethod
    def of(cls, logs: Logs, state: CrashState) -> Choices:
        """Return the choices among which a state of these logs is one."""
        disk = state.late if isinstance(state, JointState) else DiskLetter.A
        state = logs.of_disk(state, disk)
        units = {tear.entry_index: tear.unit_bytes for tear in state.tears}
        if state.draw and state.draw.unit_bytes:
            units = dict.fromkeys(landable(state.epoch), state.draw.unit_bytes)
        known = {*_reach(state.epoch, state.fua_count, state.window)}
        extra = {*state.whole, *state.ahead, *units} - known
        return cls(
            logs, state.epoch, state.fua_count, tuple(sorted(units.items())), tuple(sorted(extra)), state.window,
            state.damages, state.cut_at, disk=disk,
        )  # fmt: skip

    @property
    def log(self) -> WriteLog:
        """Return the log of the disk."""
        return self.logs.all[list(DiskLetter).index(self.disk)]

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """Return the writes that may have landed, in log order."""
        if self.has_next:
            return tuple(sorted({*self.epoch.ahead_at(self.fua_count), *self._next}))
        return tuple(sorted({*_reach(self.epoch, self.fua_count, self.window), *self.extra}))

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """Return all atoms, in log order."""
        return tuple(atom for entry in self.entries for atom in self._atoms_of(entry))

    def atoms_of(self, state: CrashState) -> frozenset[Atom]:
        """Return the atoms that landed in a state of these choices."""
        state = self.logs.of_disk(state, self.disk)
        if state.draw:
            members = state.window.members if state.window else landable(state.epoch)
            size = state.draw.unit_bytes
            things = [atom for entry in members for atom in (self._atoms_of(entry) if size else [Atom(entry)])]
            return frozenset(
                atom for atom, has_landed in zip(things, state.draw.choose(len(things)), strict=True) if has_landed
            )
        whole = {atom for entry in (*state.whole, *state.ahead) for atom in self._atoms_of(entry)}
        torn = {Atom(tear.entry_index, unit) for tear in state.tears for unit in tear.units}
        return frozenset(whole | torn)

    def state(self, landed: Collection[Atom]) -> CrashState:
        """Return the state in which these atoms landed and no others."""
        return self.logs.complete(self._own_state(landed), self.disk)

    def _own_state(self, landed: Collection[Atom]) -> CrashState:
        whole = [entry for entry in self.entries if all(atom in landed for atom in self._atoms_of(entry))]
        if self.window:
            return make_lying_state(self.window, whole=whole, damages=self.damages)
        tears = [
            Tear(entry, size, units)
            for entry, size in self.units
            if (units := tuple(atom.unit for atom in self._atoms_of(entry) if atom in landed)) and entry not in whole
        ]
        whole = [entry for entry in whole if entry not in self._next]
        fua_count = self.fua_count + any(atom.entry in self._next for atom in landed)
        reach = self.epoch.ahead_at(fua_count)
        ahead = [entry for entry in whole if entry in reach]
        batch = [entry for entry in whole if entry not in reach]
        return make_state(
            self.epoch, fua_count, whole=batch, ahead=ahead, tears=tears,
            cut_at=self.cut_at, damages=self.damages,
        )  # fmt: skip

    def pieces(self, atom: Atom) -> list[tuple[int, int]]:
        """Return where on its disk an atom is: (offset, length) in bytes."""
        if atom.unit == WHOLE:
            rows = whole_pieces(self.log, [atom.entry])
        else:
            rows = unit_pieces(self.log, [atom.entry], dict(self.units)[atom.entry])[[atom.unit]]
        return [(int(self.log.offset_bytes[entry]) + skip, length) for entry, skip, length in rows.tolist()]

    @property
    def _next(self) -> tuple[int, ...]:
        return self.epoch.fuas[self.fua_count : self.fua_count + 1] if self.has_next else ()

    def _atoms_of(self, entry: int) -> Iterator[Atom]:
        size = dict(self.units).get(entry)
        if size is None:
            yield Atom(entry)
        else:
            yield from (Atom(entry, unit) for unit in range(unit_count(self.log, entry, size)))


def _reach(epoch: Epoch, fua_count: int, window: Window | None) -> tuple[int, ...]:
    if window:
        return window.members
    ahead = epoch.ahead_at(fua_count)
    return (*landable(epoch), *ahead) if fua_count == len(epoch.fuas) else ahead
