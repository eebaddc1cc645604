"""The writes of a minimal set by name: file, offset, and what they are to the engine or the file system.

Where a file is changes from state to state, and a new file's place is known to the file system only after its journal
has committed. So files are looked up in several states: the two extremes of the cut, and some later states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from rig.analysis.explain.choices import Atom, Choices
from rig.contract.places import FilePlaces
from rig.contract.scenario import Scenario
from rig.engines import load
from rig.engines.roles import FileRoles, roles_of
from rig.faults import CrashState, DiskLetter, EntryFlag, Logs, everything_unflushed_lost
from rig.filesystems import filesystem_named
from rig.filesystems.roles import BlockRole, BlockRoles, FileChange

# Later states in which files are looked up: after this many further epochs, and at the end of the recording.
_LATER_EPOCHS = (1, 2, 4, 8)
Look = Callable[[Sequence[CrashState]], Sequence[Sequence[FilePlaces] | None]]


@dataclass(frozen=True)
class NamedWrite:
    """One write, or a part of one, in words."""

    atom: Atom
    # On its disk.
    offset_bytes: int
    length_bytes: int
    is_fua: bool
    # The file whose data it holds, and where; empty for a block of the file system itself.
    path: str = ""
    file_offset_bytes: int = 0
    # What it is to the engine or to the file system; empty if nobody knows.
    role: str = ""
    # What a block of the file system changes about files.
    changes: tuple[FileChange, ...] = ()
    # Whether the name of the file would be lost with everything else that was not flushed.
    is_name_durable: bool = True

    def __str__(self) -> str:
        kind = "FUA write" if self.is_fua else "write"
        if not self.path:
            what = f"the {self.role}" if self.role else f"block at byte {self.offset_bytes} of the disk"
            return f"{kind} of {what}"
        named = "" if self.is_name_durable else ", a name that is not durable yet"
        role = f": {self.role}" if self.role else ""
        return f"{kind} of {self.length_bytes} bytes at {self.file_offset_bytes} of {self.path}{named}{role}"


@dataclass
class BlockNamer:
    """Names the writes of one cut."""

    scenario: Scenario
    logs: Logs
    choices: Choices
    look: Look
    _roles: FileRoles | None = field(init=False)

    def __post_init__(self) -> None:
        self._roles = roles_of(load(self.scenario.engine_module))

    def names(self, atoms: Iterable[Atom]) -> list[NamedWrite]:
        """Return the writes with their names, in log order."""
        return [self._name(atom) for atom in sorted(atoms)]

    def path_of(self, entry: int) -> str:
        """Return the file whose data a write of the log begins with; empty for a block of the file system."""
        owner = self._owner(int(self.logs.first.offset_bytes[entry]))
        return "" if owner is None or owner.is_directory else owner.path

    def atoms_in(self, path: str, offset_bytes: int, length_bytes: int) -> list[Atom]:
        """Return the atoms of the cut whose data belongs to a part of a file."""
        return [
            atom
            for atom in self.choices.atoms
            if self._begin_in(atom, path) in range(offset_bytes, offset_bytes + length_bytes)
        ]

    def _begin_in(self, atom: Atom, path: str) -> int | None:
        """Return where the data of an atom begins in a file; None if it belongs to something else."""
        ((offset, _),) = self.choices.pieces(atom)
        owner = self._owner(offset) if self.choices.disk is DiskLetter.A else None
        return owner.offset_of(offset) if owner and owner.path == path else None

    def _name(self, atom: Atom) -> NamedWrite:
        ((offset, length),) = self.choices.pieces(atom)
        write = NamedWrite(atom, offset, length, bool(self.choices.log.flags[atom.entry] & EntryFlag.FUA))
        if self.choices.disk is not DiskLetter.A:
            return replace(write, role=f"block at byte {offset} of disk {self.choices.disk}")
        owner = self._owner(offset)
        if owner and not owner.is_directory:
            begin = owner.offset_of(offset) or 0
            role = self._roles.role(owner.path, begin, length, self._read_file) if self._roles else ""
            return NamedWrite(
                atom, offset, length, write.is_fua, owner.path, begin, role, (), owner.path in self._durable_names
            )
        block = self._role_of_block(atom, offset, length)
        if block is None:
            return write
        return NamedWrite(atom, offset, length, write.is_fua, role=block.what, changes=block.changes)

    def _role_of_block(self, atom: Atom, offset: int, length: int) -> BlockRole | None:
        """Return what a block is to the file system, once all other writes of the cut have landed."""
        others = self.choices.state([other for other in self.choices.atoms if other != atom])
        read = partial(others.read, self.choices.log)
        filesystem = filesystem_named(self.scenario.filesystem)
        if not isinstance(filesystem, BlockRoles):
            return None
        return filesystem.role_of(offset, self._read(offset, length), read, self._files)

    def _owner(self, device_offset: int) -> FilePlaces | None:
        return next((places for places in self._files if places.offset_of(device_offset) is not None), None)

    def _read_file(self, path: str, offset: int, length: int) -> bytes:
        """Read a file as it is once everything of this cut has landed; zeros where it has no place."""
        known = next((places for places in self._files if places.path == path), None)
        size = max((places.size_bytes for places in self._files if places.path == path), default=0)
        data = bytearray(max(0, min(length, size - offset)))
        for file_offset, device_offset, extent in known.extents if known else ():
            begin, end = max(offset, file_offset), min(offset + len(data), file_offset + extent)
            if begin < end:
                data[begin - offset : end - offset] = self._read(device_offset + begin - file_offset, end - begin)
        return bytes(data)

    def _read(self, offset: int, length: int) -> bytes:
        return self._full.read(self.choices.log, offset, length)

    @cached_property
    def _full(self) -> CrashState:
        return self.choices.state(self.choices.atoms)

    @cached_property
    def _empty(self) -> CrashState:
        return self.choices.state(())

    @cached_property
    def _maps(self) -> list[Sequence[FilePlaces]]:
        log, epochs = self.logs.first, self.logs.epochs
        here = self.logs.of_disk(self._full).epoch.number
        ends = [epochs[min(here + more, len(epochs) - 1)].end for more in _LATER_EPOCHS]
        entries = dict.fromkeys((*ends, log.entry_count))
        later = [self.logs.complete(everything_unflushed_lost(log, epochs, entry)) for entry in entries]
        states = [self._full, self._empty, *later]
        seen = [state for state in states if self.logs.is_complete(state)]
        files = dict(zip([state.id for state in seen], self.look(seen), strict=True))
        return [files.get(state.id) or () for state in states]

    @cached_property
    def _files(self) -> list[FilePlaces]:
        """All files, beginning with the cut's own."""
        return [file for places in self._maps for file in places]

    @cached_property
    def _durable_names(self) -> set[str]:
        return {file.path for file in self._maps[1]}
