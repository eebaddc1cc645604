"""File content: two directories have the same digest if, and only if, an engine would see the same in them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.guest import filecontent, verifier

NAMES = st.sampled_from(["a", "b", "ab", "database", "database-wal"])
BYTES = st.binary(max_size=40) | st.integers(0, 3).map(lambda count: bytes(count * 5000))
# A directory is a mapping, a file (bytes, mode), a symbolic link its target.
TREE = st.recursive(
    st.tuples(BYTES, st.sampled_from([0o600, 0o644])) | st.sampled_from(["a", "nowhere"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
).filter(lambda tree: isinstance(tree, dict))


def make(folder: Path, tree: object) -> None:
    if isinstance(tree, dict):
        folder.mkdir()
        for name, part in tree.items():
            make(folder / name, part)
    elif isinstance(tree, str):
        folder.symlink_to(tree)
    else:
        assert isinstance(tree, tuple)
        content, mode = tree
        folder.write_bytes(content)
        folder.chmod(mode)


def digest(folder: Path, tree: object) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, tree)
    return filecontent.digest(str(folder))


@given(one=TREE, other=TREE)
def test_digests_are_equal_just_when_everything_that_an_engine_reads_is(
    tmp_path_factory: pytest.TempPathFactory, one: object, other: object
) -> None:
    place = tmp_path_factory.getbasetemp()
    assert (one == other) is (digest(place / "one", one) == digest(place / "other", other))


def test_times_and_the_order_of_creation_do_not_matter(tmp_path: Path) -> None:
    parts = {"a": (b"1", 0o600), "b": (b"2", 0o600), "c": {"d": (b"", 0o600)}}
    first = digest(tmp_path / "one", parts)
    second = digest(tmp_path / "two", dict(reversed(parts.items())))
    os.utime(tmp_path / "two" / "a", (1, 1))
    assert first == second == filecontent.digest(str(tmp_path / "two"))


def test_pages_that_cannot_be_read_are_content_of_their_own() -> None:
    # No address below 64 KiB is mapped in any process, and reading there gives EIO.
    file = os.open("/proc/self/mem", os.O_RDONLY)
    found: list[bytes] = []
    try:
        assert 8192 == filecontent._add_part(file, 0, 8192, lambda part: found.append(bytes(part)))
    finally:
        os.close(file)
    assert [b"unreadable"] * 2 == found


def test_a_directory_that_cannot_be_listed_has_no_digest(tmp_path: Path) -> None:
    assert "" == filecontent.digest(str(tmp_path / "gone"))


def test_a_known_content_answers_unopened_and_a_sample_of_them_is_opened_again() -> None:
    known, opened = verifier._Known(), []

    def judge() -> Finding:
        opened.append(1)
        return Finding(FindingKind.PREFIX, recovered=3, files="f")

    found = [known.judge(("f", None), judge, judge) for _ in range(33)]
    assert {(FindingKind.PREFIX, 3, "f")} == {(one.kind, one.recovered, one.files) for one in found}
    assert 1 + 32 // verifier._AGAIN_EVERY == len(opened) == sum(one.opened for one in found)
    # Under another clock the same files are another content.
    assert known.judge(("f", 7), judge, judge).opened


def test_only_a_prefix_answers_for_other_states() -> None:
    known = verifier._Known()

    def judge() -> Finding:
        return Finding(FindingKind.CORRUPT, detail="x")

    found = [known.judge(("f", None), judge, judge) for _ in range(9)]
    assert all(one.opened for one in found)


def test_a_known_content_that_shows_something_else_is_unstable() -> None:
    known = verifier._Known()
    numbers = iter(range(100))

    def judge() -> Finding:
        return Finding(FindingKind.PREFIX, recovered=next(numbers))

    found = [known.judge(("f", None), judge, judge) for _ in range(1 + verifier._AGAIN_EVERY)]
    assert {FindingKind.PREFIX} == {one.kind for one in found[:-1]}
    assert (FindingKind.UNSTABLE, None) == (found[-1].kind, found[-1].recovered)
    assert "the same files showed prefix 0 and then prefix 1" == found[-1].detail
