"""The names of the blocks of ext4, on file systems that its own tools have made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.contract.places import FilePlaces
from rig.filesystems import filesystem_named, filesystems
from rig.filesystems.extblocks import Layout, role_of
from rig.filesystems.roles import BlockRoles, ChangeKind, FileChange, Read
from rig.host import processes

BLOCK = 4096
_SIZE = "32M"


def run(*command: str) -> str:
    return processes.run(command, timeout_s=60).decode()


class Disk:
    """A file system in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def block(self, number: int) -> bytes:
        return self.read(number * BLOCK, BLOCK)

    def debugfs(self, *requests: str, write: bool = False) -> str:
        commands = self.path.with_suffix(".commands")
        commands.write_text("\n".join(requests))
        return run("debugfs", *(["-w"] if write else []), "-f", str(commands), str(self.path))

    def blocks_of(self, path: str) -> list[int]:
        return [int(word) for word in re.findall(r"\d+", self.debugfs(f"blocks {path}").splitlines()[-1])]

    def places(self) -> list[FilePlaces]:
        """Where the root directory and the files of the fixture are."""
        found = [FilePlaces(".", 2, is_directory=True, size_bytes=BLOCK, extents=self._extents("/"))]
        for name in ("one", "two"):
            (inode,) = re.findall(r"Inode: (\d+)", self.debugfs(f"stat /{name}"))
            found.append(FilePlaces(name, int(inode), False, 3 * BLOCK, self._extents(f"/{name}")))
        return found

    def _extents(self, path: str) -> tuple[tuple[int, int, int], ...]:
        return tuple((rank * BLOCK, number * BLOCK, BLOCK) for rank, number in enumerate(self.blocks_of(path)))

    def role(self, number: int, data: bytes | None = None) -> str:
        found = role_of(number * BLOCK, self.block(number) if data is None else data, self.read, self.places())
        return str(found)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    folder = tmp_path_factory.mktemp("files")
    for name in ("one", "two"):
        (folder / name).write_bytes(name.encode() * (BLOCK * 3 // len(name) + 1))
    disk = tmp_path_factory.mktemp("disk") / "ext4"
    run("mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-d", str(folder), str(disk), _SIZE)
    return Disk(disk)


@pytest.fixture
def disk(made: Disk, tmp_path: Path) -> Disk:
    copy = tmp_path / "disk"
    copy.write_bytes(made.path.read_bytes())
    return Disk(copy)


def test_every_block_that_the_tools_report_has_its_name(made: Disk) -> None:
    said = run("dumpe2fs", str(made.path))
    places = {
        what: int(re.findall(rf"{what} at (\d+)", said)[0]) for what in ("Block bitmap", "Inode bitmap", "Inode table")
    }
    assert "superblock" == made.role(0)
    assert "group descriptors" == made.role(1)
    assert "bitmap of the blocks of group 0" == made.role(places["Block bitmap"])
    assert "bitmap of the inodes of group 0" == made.role(places["Inode bitmap"])
    assert "inodes" == made.role(places["Inode table"])
    assert "block of the directory ." == made.role(made.blocks_of("/")[0])
    assert "None" == made.role(made.blocks_of("/one")[1])


def test_the_journal_has_all_the_blocks_that_the_tools_report(made: Disk) -> None:
    layout = Layout.of(made.read)
    assert layout
    said = made.blocks_of("<8>")
    assert said == [number for number in said if number in layout.journal_blocks]
    assert list(range(len(layout.journal_blocks))) == sorted(layout.journal_blocks.values())


def journaled(disk: Disk, number: int, data: bytes, folder: Path) -> tuple[int, int, int]:
    """Write a block through the journal; return the blocks of descriptor, copy and commit."""
    before = {place: disk.block(place) for place in disk.blocks_of("<8>")}
    (folder / "block").write_bytes(data)
    disk.debugfs("jo", f"jw -b {number} {folder / 'block'}", "jc", write=True)
    changed = [place for place, content in before.items() if disk.block(place) != content]
    descriptor, copy, commit = [place for place in changed if place != disk.blocks_of("<8>")[0]]
    return descriptor, copy, commit


def without_name(block: bytes, name: bytes) -> bytes:
    """Return a block of a directory with a name renamed to another of the same length."""
    return block.replace(name, b"x" * len(name))


def test_a_commit_names_what_its_transaction_does_to_a_directory(disk: Disk, tmp_path: Path) -> None:
    number = disk.blocks_of("/")[0]
    changed = without_name(disk.block(number), b"two")
    descriptor, copy, commit = journaled(disk, number, changed, tmp_path)
    told = "it removes the name two; it adds the name xxx"
    assert f"commit block of the journal: {told}" == disk.role(commit)
    assert f"descriptor block of the journal: {told}" == disk.role(descriptor)
    assert f"copy in the journal: block of the directory .: {told}" == disk.role(copy)


def test_a_second_copy_is_compared_with_the_first(disk: Disk, tmp_path: Path) -> None:
    number = disk.blocks_of("/")[0]
    first = without_name(disk.block(number), b"two")
    journaled(disk, number, first, tmp_path)
    _, _, commit = journaled(disk, number, without_name(first, b"one"), tmp_path)
    assert "it removes the name one" in disk.role(commit)
    assert "two" not in disk.role(commit)


def test_a_changed_inode_has_the_name_of_its_file_and_both_sizes(disk: Disk) -> None:
    layout = Layout.of(disk.read)
    assert layout
    (inode,) = [one.inode for one in disk.places() if one.path == "two"]
    size = int.from_bytes(layout.superblock[0x58:0x5A], "little")
    place = layout.groups[0].inode_table * BLOCK + (inode - 1) * size
    number = place // BLOCK
    data = bytearray(disk.block(number))
    data[place % BLOCK + 4 : place % BLOCK + 8] = (5).to_bytes(4, "little")
    found = role_of(number * BLOCK, bytes(data), disk.read, disk.places())
    assert found
    (change,) = found.changes
    assert (ChangeKind.SIZE, "two") == (change.kind, change.path)
    assert change.detail.endswith("to 5 bytes")


def test_an_inode_that_another_file_got_frees_the_one_and_makes_the_other(disk: Disk) -> None:
    layout = Layout.of(disk.read)
    assert layout
    (inode,) = [one.inode for one in disk.places() if one.path == "two"]
    size = int.from_bytes(layout.superblock[0x58:0x5A], "little")
    place = layout.groups[0].inode_table * BLOCK + (inode - 1) * size
    data = bytearray(disk.block(place // BLOCK))
    data[place % BLOCK + 0x64] ^= 1
    found = role_of(place // BLOCK * BLOCK, bytes(data), disk.read, disk.places())
    assert found
    assert [(ChangeKind.REMOVED, "two"), (ChangeKind.MADE, "two")] == [(one.kind, one.path) for one in found.changes]


def test_no_other_file_system_is_taken_for_this_one() -> None:
    assert role_of(0, bytes(BLOCK), lambda _, length: bytes(length), []) is None


def test_the_variants_offer_roles_and_other_file_systems_need_not() -> None:
    assert isinstance(filesystem_named("ext4"), BlockRoles)
    assert not all(isinstance(one, BlockRoles) for one in filesystems())


def flipped(disk: bytes, flips: list[tuple[int, int]]) -> Read:
    changed = bytearray(disk)
    for place, value in flips:
        changed[place % len(changed)] = value
    return lambda offset, length: bytes(changed[offset : offset + length])


class Known(NamedTuple):
    """A disk, where its files are, and telling blocks of it."""

    content: bytes
    places: list[FilePlaces]
    blocks: list[int]


@pytest.fixture(scope="module")
def known(made: Disk) -> Known:
    blocks = [0, 1, 2, 30, *made.blocks_of("<8>")[:3], *made.blocks_of("/")]
    return Known(made.path.read_bytes(), made.places(), blocks)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_system_gives_some_name_or_none(known: Known, data: st.DataObject) -> None:
    journal = known.blocks[4] * BLOCK
    places = st.one_of(
        *(st.integers(begin, end) for begin, end in ((1024, 2048), (4096, 8192), (journal, journal + 64)))
    )
    read = flipped(known.content, data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)))
    number = data.draw(st.sampled_from(known.blocks))
    found = role_of(number * BLOCK, read(number * BLOCK, BLOCK), read, known.places)
    assert found is None or found.what


def test_a_change_reads_as_the_end_of_a_sentence() -> None:
    assert "removes the name a/b" == str(FileChange(ChangeKind.NAME_REMOVED, "a/b"))
    assert "changes the size of c (1 to 2 bytes)" == str(FileChange(ChangeKind.SIZE, "c", "1 to 2 bytes"))
