"""What the blocks of ext2, ext3 and ext4 are: superblock, bitmaps, inodes, directories, and the journal of jbd2.

Layouts: Documentation/filesystems/ext4 of Linux; include/linux/jbd2.h. The file system's numbers are little endian,
the journal's big endian. The descriptors in the journal say which block each copy is of, so copies and what they change
have names too. A copy is compared with the newest older copy that the journal still needs, or with the block in its
place.

Left out: a journal on another disk; the records of fast commits; directories with an index deeper than their blocks.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rig.contract.places import FilePlaces
from rig.filesystems.roles import BlockRole, ChangeKind, FileChange, Read

_SUPERBLOCK_AT, _SUPERBLOCK_BYTES = 1024, 1024
_MAGIC, _JOURNAL_MAGIC, _EXTENT_MAGIC = 0xEF53, 0xC03B3998, 0xF30A
_64BIT, _ORPHAN_FILE = 0x80, 0x1000
_EXTENTS_FLAG = 0x80000
# Where an inode has a number that changes when another file gets it.
_GENERATION = slice(0x64, 0x68)
# Kinds of blocks in the journal.
_DESCRIPTOR, _COMMIT, _SUPER_V1, _SUPER_V2, _REVOKE = 1, 2, 3, 4, 5
_KINDS = {_COMMIT: "commit block", _REVOKE: "revoke block", _SUPER_V1: "superblock", _SUPER_V2: "superblock"}
# Features of the journal, and flags of a tag.
_J_64BIT, _J_CSUM_V2, _J_CSUM_V3 = 2, 8, 16
_ESCAPED, _SAME_UUID, _LAST_TAG = 1, 2, 8
_JOURNAL_HEADER = struct.Struct(">III")
_NAMES_MAX = 6
# Far more than a disk of the rig has; a damaged superblock may promise any number.
_GROUPS_MAX = 1 << 12


def role_of(offset_bytes: int, data: bytes, read: Read, files: Sequence[FilePlaces]) -> BlockRole | None:
    """Return what a write to the device is; None for data of a file, or if this is no such file system.

    None, too, if the file system is so damaged that its structures lead nowhere.
    """
    layout = Layout.of(read)
    try:
        return layout.role_of(offset_bytes, data, files) if layout else None
    except (struct.error, ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None


@dataclass(frozen=True)
class _Group:
    number: int
    block_bitmap: int
    inode_bitmap: int
    inode_table: int


@dataclass(frozen=True)
class Layout:
    """Where everything is on one disk."""

    read: Read
    superblock: bytes

    @classmethod
    def of(cls, read: Read) -> Layout | None:
        """Return the layout of a device, or None if it holds no such file system."""
        superblock = read(_SUPERBLOCK_AT, _SUPERBLOCK_BYTES)
        return cls(read, superblock) if _u16(superblock, 0x38) == _MAGIC else None

    @property
    def block_bytes(self) -> int:
        """Return the size of a block."""
        return 1024 << _u32(self.superblock, 0x18)

    def role_of(self, offset_bytes: int, data: bytes, files: Sequence[FilePlaces]) -> BlockRole | None:
        """Return what a write is, by its first block; None for data of a file."""
        number = offset_bytes // self.block_bytes
        if number in self.journal_blocks:
            return Journal(self, number, data).role_of(files)
        return self.role_of_home(number, data, self.block(number), files)

    def role_of_home(self, number: int, data: bytes, before: bytes, files: Sequence[FilePlaces]) -> BlockRole | None:
        """Return what a block outside the journal is, and what it changes against an older content of it."""
        if number * self.block_bytes <= _SUPERBLOCK_AT < (number + 1) * self.block_bytes:
            return BlockRole("superblock")
        if number <= self._descriptors_end:
            return BlockRole("group descriptors")
        if number in self._orphan_blocks:
            return BlockRole("list of orphans")
        for group in self.groups:
            if number == group.block_bitmap:
                return BlockRole(f"bitmap of the blocks of group {group.number}")
            if number == group.inode_bitmap:
                return BlockRole(f"bitmap of the inodes of group {group.number}")
            first = number - group.inode_table
            if 0 <= first < self._inodes_per_group * self._inode_bytes // self.block_bytes:
                inode = group.number * self._inodes_per_group + first * self.block_bytes // self._inode_bytes + 1
                return BlockRole("inodes", tuple(self._changed_inodes(inode, data, before, files)))
        owner = next((file for file in files if file.offset_of(number * self.block_bytes) is not None), None)
        if owner and owner.is_directory:
            return BlockRole(f"block of the directory {owner.path}", tuple(_changed_names(owner.path, data, before)))
        return None

    def block(self, number: int) -> bytes:
        """Return the content of a block."""
        return self.read(number * self.block_bytes, self.block_bytes)

    @cached_property
    def groups(self) -> tuple[_Group, ...]:
        """Return the groups of blocks."""
        size = _u16(self.superblock, 0xFE) if self._incompatible & _64BIT else 32
        count = -(-(_u32(self.superblock, 4) - self._first_block) // _u32(self.superblock, 0x20))
        if count > _GROUPS_MAX:
            raise ValueError(f"{count} groups")
        table = self.read((self._first_block + 1) * self.block_bytes, count * size)
        groups = []
        for number in range(count):
            places = struct.unpack_from("<III", table, number * size)
            if size > 32:
                highs = struct.unpack_from("<III", table, number * size + 0x20)
                places = tuple(low | high << 32 for low, high in zip(places, highs, strict=True))
            groups.append(_Group(number, *places))
        return tuple(groups)

    @cached_property
    def journal_blocks(self) -> dict[int, int]:
        """Return where the blocks of the journal are: place on the disk -> place in the journal."""
        return self._blocks_of(_u32(self.superblock, 0xE0))

    @cached_property
    def _orphan_blocks(self) -> dict[int, int]:
        has_one = _u32(self.superblock, 0x5C) & _ORPHAN_FILE
        return self._blocks_of(_u32(self.superblock, 0x280) if has_one else 0)

    def _blocks_of(self, number: int) -> dict[int, int]:
        """Return where the blocks of an inode are: place on the disk -> place in the file; nothing for inode 0."""
        group, rank = divmod(number - 1, max(1, self._inodes_per_group))
        if not number or group >= len(self.groups):
            return {}
        place = self.groups[group].inode_table * self.block_bytes + rank * self._inode_bytes
        inode = self.read(place, self._inode_bytes)
        root = inode[0x28 : 0x28 + 60]
        pairs = self._of_extents(root) if _u32(inode, 0x20) & _EXTENTS_FLAG else self._of_pointers(root)
        return {number: rank for rank, number in pairs if number}

    def _of_extents(self, node: bytes) -> Iterator[tuple[int, int]]:
        magic, count, _, depth = struct.unpack_from("<HHHH", node)
        for index in range(count if magic == _EXTENT_MAGIC else 0):
            at = 12 * (index + 1)
            if depth:
                low, high = struct.unpack_from("<IH", node, at + 4)
                yield from self._of_extents(self.block(low | high << 32))
            else:
                first, length, high, low = struct.unpack_from("<IHHI", node, at)
                yield from ((first + rank, (low | high << 32) + rank) for rank in range(length))

    def _of_pointers(self, root: bytes) -> Iterator[tuple[int, int]]:
        direct, (indirect, double) = struct.unpack_from("<12I", root), struct.unpack_from("<II", root, 48)
        per_block = self.block_bytes // 4
        numbers = [*direct]
        for block in filter(None, (indirect,)):
            numbers += struct.unpack(f"<{per_block}I", self.block(block))
        for block in struct.unpack(f"<{per_block}I", self.block(double)) if double else ():
            numbers += struct.unpack(f"<{per_block}I", self.block(block)) if block else [0] * per_block
        yield from enumerate(numbers)

    def _changed_inodes(
        self, first: int, data: bytes, before: bytes, files: Sequence[FilePlaces]
    ) -> Iterator[FileChange]:
        size = self._inode_bytes
        for rank in range(min(len(data), len(before)) // size):
            new, old = (part[rank * size : (rank + 1) * size] for part in (data, before))
            if new != old:
                number = first + rank
                path = next((file.path for file in files if file.inode == number), f"inode {number}")
                yield from _changed_inode(path, new, old)

    @property
    def _first_block(self) -> int:
        return _u32(self.superblock, 0x14)

    @property
    def _descriptors_end(self) -> int:
        size = _u16(self.superblock, 0xFE) if self._incompatible & _64BIT else 32
        return self._first_block + -(-len(self.groups) * size // self.block_bytes)

    @property
    def _incompatible(self) -> int:
        return _u32(self.superblock, 0x60)

    @property
    def _inodes_per_group(self) -> int:
        return _u32(self.superblock, 0x28)

    @property
    def _inode_bytes(self) -> int:
        return _u16(self.superblock, 0x58) or 128


@dataclass(frozen=True)
class _Copy:
    """A block that the journal has a copy of."""

    sequence: int
    # Its own place on the disk, and the place of the copy in the journal.
    home: int
    rank: int
    is_escaped: bool


class Journal:
    """The journal of one disk, with all that it still holds, and one block of it that is about to be written."""

    def __init__(self, layout: Layout, number: int, data: bytes) -> None:
        self._layout = layout
        self._fresh_rank, self._fresh = layout.journal_blocks[number], data
        self._places = {rank: number for number, rank in layout.journal_blocks.items()}
        head = self._block(0)
        self._features = _b32(head, 0x28)
        self._first, self._end = _b32(head, 0x14), min(_b32(head, 0x10), len(self._places))
        # Older transactions are in their places.
        self._sequence = _b32(head, 0x18)

    def role_of(self, files: Sequence[FilePlaces]) -> BlockRole:
        """Return what the block is that is about to be written, and what it changes."""
        rank, data = self._fresh_rank, self._fresh
        magic, kind, sequence = _JOURNAL_HEADER.unpack_from(data)
        if magic == _JOURNAL_MAGIC and kind in _KINDS:
            changes = self._changes_of(sequence, files) if kind == _COMMIT else ()
            return BlockRole(f"{_KINDS[kind]} of the journal", tuple(changes))
        if magic == _JOURNAL_MAGIC and kind == _DESCRIPTOR:
            return BlockRole("descriptor block of the journal", tuple(self._changes_of(sequence, files)))
        copies = [copy for copy in self._copies if copy.rank == rank]
        if not copies:
            return BlockRole("block of the journal that no descriptor names")
        copy = max(copies, key=lambda copy: copy.sequence)
        role = self._role_of_copy(copy, data, files)
        return BlockRole(f"copy in the journal: {role.what}", role.changes)

    def _changes_of(self, sequence: int, files: Sequence[FilePlaces]) -> list[FileChange]:
        changes: dict[str, FileChange] = {}
        for copy in self._copies:
            if copy.sequence == sequence:
                role = self._role_of_copy(copy, self._block(copy.rank), files)
                changes |= {str(change): change for change in role.changes}
        order = list(ChangeKind)
        return sorted(changes.values(), key=lambda change: (order.index(change.kind), change.path))

    def _role_of_copy(self, copy: _Copy, data: bytes, files: Sequence[FilePlaces]) -> BlockRole:
        data = _JOURNAL_MAGIC.to_bytes(4, "big") + data[4:] if copy.is_escaped else data
        role = self._layout.role_of_home(copy.home, data, self._before(copy), files)
        if role:
            return role
        place = copy.home * self._layout.block_bytes
        owner = next((file for file in files if file.offset_of(place) is not None), None)
        if owner is None:
            return BlockRole(f"block {copy.home}")
        return BlockRole("data", (FileChange(ChangeKind.DATA, owner.path, f"at {owner.offset_of(place)}"),))

    def _before(self, copy: _Copy) -> bytes:
        """Return the content that a copy replaces: an older copy, or the block in its place."""
        older = [
            older_copy
            for older_copy in self._copies
            if older_copy.home == copy.home and self._sequence <= older_copy.sequence < copy.sequence
        ]
        if not older:
            return self._layout.block(copy.home)
        newest = max(older, key=lambda older_copy: older_copy.sequence)
        data = self._block(newest.rank)
        return _JOURNAL_MAGIC.to_bytes(4, "big") + data[4:] if newest.is_escaped else data

    @cached_property
    def _copies(self) -> tuple[_Copy, ...]:
        return tuple(
            copy
            for rank in range(self._first, self._end)
            if _JOURNAL_HEADER.unpack_from(block := self._block(rank))[:2] == (_JOURNAL_MAGIC, _DESCRIPTOR)
            for copy in self._copies_of(rank, block)
        )

    def _copies_of(self, rank: int, block: bytes) -> Iterator[_Copy]:
        sequence = _JOURNAL_HEADER.unpack_from(block)[2]
        at, tag_bytes = _JOURNAL_HEADER.size, self._tag_bytes
        while at + tag_bytes <= len(block):
            home = _b32(block, at)
            flags = (
                _b32(block, at + 4) if self._features & _J_CSUM_V3 else int.from_bytes(block[at + 6 : at + 8], "big")
            )
            if self._features & _J_64BIT:
                home |= _b32(block, at + 8) << 32
            rank = rank + 1 if rank + 1 < self._end else self._first
            yield _Copy(sequence, home, rank, bool(flags & _ESCAPED))
            at += tag_bytes + (0 if flags & _SAME_UUID else 16)
            if flags & _LAST_TAG:
                return

    @property
    def _tag_bytes(self) -> int:
        if self._features & _J_CSUM_V3:
            return 16
        size = 14 if self._features & _J_CSUM_V2 else 12
        return size if self._features & _J_64BIT else size - 4

    def _block(self, rank: int) -> bytes:
        size = self._layout.block_bytes
        if rank == self._fresh_rank:
            return self._fresh[:size]
        return bytes(size) if rank not in self._places else self._area[rank * size : (rank + 1) * size]

    @cached_property
    def _area(self) -> bytes:
        """The whole journal, read at once where its blocks follow each other."""
        size, parts = self._layout.block_bytes, []
        rank = 0
        while rank in self._places:
            count = 1
            while self._places.get(rank + count) == self._places[rank] + count:
                count += 1
            parts.append(self._layout.read(self._places[rank] * size, count * size))
            rank += count
        return b"".join(parts)


def _changed_inode(path: str, new: bytes, old: bytes) -> Iterator[FileChange]:
    was_used, is_used = bool(_u16(old, 0x1A)), bool(_u16(new, 0x1A))
    is_another = new[_GENERATION] != old[_GENERATION]
    if was_used and (not is_used or is_another):
        yield FileChange(ChangeKind.REMOVED, path, "an earlier file of that name" if is_used else "")
    if is_used and (not was_used or is_another):
        yield FileChange(ChangeKind.MADE, path)
    if not (was_used and is_used) or is_another:
        return
    sizes = [_u32(part, 4) | _u32(part, 0x6C) << 32 for part in (old, new)]
    if sizes[0] != sizes[1]:
        yield FileChange(ChangeKind.SIZE, path, f"{sizes[0]} to {sizes[1]} bytes", sizes[1])
    elif new[0x28:0x64] != old[0x28:0x64]:
        yield FileChange(ChangeKind.BLOCKS, path)
    else:
        yield FileChange(ChangeKind.TIMES, path)


def _changed_names(folder: str, data: bytes, before: bytes) -> Iterator[FileChange]:
    """Yield the names that go and come; a name that goes to another inode does both."""
    new, old = (set(_names(block)) for block in (data, before))
    for kind, names in ((ChangeKind.NAME_REMOVED, old - new), (ChangeKind.NAME_ADDED, new - old)):
        for name, _ in sorted(names)[:_NAMES_MAX]:
            yield FileChange(kind, os.path.normpath(f"{folder}/{name}"))


def _names(block: bytes) -> Iterator[tuple[str, int]]:
    at = 0
    while at + 8 <= len(block):
        inode, length, name_length = struct.unpack_from("<IHB", block, at)
        if length < 8 or at + length > len(block):
            return
        name = block[at + 8 : at + 8 + name_length].decode(errors="replace")
        if inode and name not in {".", ".."}:
            yield name, inode
        at += length


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _b32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")
