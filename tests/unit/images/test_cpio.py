"""cpio archives: our reader and the real program unpack what was packed, and packing always gives the same bytes."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.images.cpio import archive

# Needs cpio.
pytestmark = pytest.mark.slow

Files = dict[str, tuple[bytes, int]]

names = st.text(st.characters(categories=["L", "N"], include_characters="._- "), min_size=1, max_size=9).filter(
    lambda name: name not in (".", "..")
)

# Needs cpio.
pytestmark = pytest.mark.slow
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


def is_a_tree(files: Files) -> bool:
    """Whether no file has a path that another file needs as a directory."""
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    return not folders & files.keys()


trees = st.dictionaries(paths, st.tuples(st.binary(max_size=50), st.sampled_from([0o644, 0o755, 0o600]))).filter(
    is_a_tree
)


def unpack(data: bytes) -> list[tuple[str, int, bytes]]:
    """Return name, mode and content of every member, read in the kernel's newc format."""
    members: list[tuple[str, int, bytes]] = []
    place = 0
    while True:
        assert b"070701" == data[place : place + 6]
        fields = [int(data[place + 6 + 8 * rank : place + 14 + 8 * rank], 16) for rank in range(13)]
        size, name_size = fields[6], fields[11]
        name = data[place + 110 : place + 110 + name_size]
        assert 0 == name[-1]
        place = (place + 110 + name_size + 3) // 4 * 4
        if name == b"TRAILER!!!\0":
            assert len(data) == place
            return members
        members.append((name[:-1].decode(), fields[1], data[place : place + size]))
        place = (place + size + 3) // 4 * 4


@given(files=trees)
def test_every_file_comes_out_as_it_went_in_behind_its_directories(files: Files) -> None:
    data = archive(files)
    members = unpack(data)
    found = {name: (content, stat.S_IMODE(mode)) for name, mode, content in members if stat.S_ISREG(mode)}
    assert files == found
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
    assert folders == {name for name, mode, _ in members if stat.S_ISDIR(mode)}
    seen: set[str] = {"."}
    for name, _, _ in members:
        assert str(PurePosixPath(name).parent) in seen
        seen.add(name)
    assert len(members) == len(seen) - 1


@given(files=trees)
def test_the_same_files_give_the_same_bytes_that_may_be_followed_by_another_archive(files: Files) -> None:
    data = archive(files)
    assert archive(dict(reversed(files.items()))) == data
    assert 0 == len(data) % 4


def test_the_real_cpio_unpacks_it(tmp_path: Path) -> None:
    files = {"init": (b"#!/bin/sh\n", 0o755), "a/b/c.py": (b"x" * 4097, 0o644), "a/empty": (b"", 0o600)}
    subprocess.run(["cpio", "-id", "--quiet"], input=archive(files), cwd=tmp_path, check=True, timeout=20)
    found = {
        str(path.relative_to(tmp_path)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert files == found
