"""Parcels: what arrives is what was sent, by digest, without holes; what is in use stays."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.campaign.executors import parcels
from rig.campaign.executors.parcels import LackError, Parcel
from rig.contract.errors import HostError
from rig.host import cache

MIB = 1 << 20
# (name, whether it is a program, [(offset, bytes)], size): few windows, some of them in a distant place.
FILES = st.dictionaries(
    st.sampled_from(["ram", "state", "lib/libc.so", "lib/deep/ld.so"]),
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(st.integers(0, 3 * MIB), st.binary(min_size=1, max_size=5000)), max_size=4),
        st.integers(0, 4 * MIB),
    ),
    min_size=1,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folder_of(place: Path, files: dict[str, tuple[bool, list[tuple[int, bytes]], int]]) -> Path:
    for name, (is_program, pieces, size) in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
            for offset, data in pieces:
                file.seek(offset)
                file.write(data)
        path.chmod(0o755 if is_program else 0o644)
    return place


def send(path: Path, sender: str = "s") -> Parcel:
    parcel = parcels.parcel_of(path)
    for parts in parcels.messages(path):
        parcels.receive(parcel, sender, parts)
    parcels.finish(parcel, sender)
    return parcel


def contents(folder: Path) -> dict[str, tuple[bytes, bool]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK)) for path in files}


@given(files=FILES)
def test_a_folder_arrives_as_it_was_sent(
    files: dict[str, tuple[bool, list[tuple[int, bytes]], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = folder_of(tmp_path_factory.mktemp("from"), files)
    parcel = send(source)
    assert parcels.has(parcel)
    with parcels.hold(parcel) as arrived:
        assert contents(source) == contents(arrived)
        assert arrived == parcel.within(cache.cache_folder())
        assert parcel.digest == parcels.parcel_of(arrived).digest


def test_a_sparse_file_travels_without_its_holes_and_stays_sparse(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(os.urandom(100_000))
        file.truncate(4 << 30)
    sent = sum(len(part.packed) for parts in parcels.messages(path) for part in parts)
    assert 100_000 < sent < 200_000
    parcel = send(path)
    with parcels.hold(parcel) as arrived:
        assert 4 << 30 == arrived.stat().st_size
        assert arrived.stat().st_blocks * 512 < MIB
        with path.open("rb") as ours, arrived.open("rb") as theirs:
            assert ours.read(200_000) == theirs.read(200_000)


def test_a_digest_is_the_same_whether_zeros_are_holes_or_stored(tmp_path: Path) -> None:
    sparse, full = (tmp_path / name / "folder" / "ram" for name in ("sparse", "full"))
    for path in (sparse, full):
        path.parent.mkdir(parents=True)
    with sparse.open("wb") as file:
        file.seek(MIB)
        file.write(b"x")
    full.write_bytes(bytes(MIB) + b"x")
    assert parcels.parcel_of(sparse.parent).digest == parcels.parcel_of(full.parent).digest


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "ram").write_bytes(b"other"),
        lambda folder: (folder / "ram").rename(folder / "rom"),
        lambda folder: (folder / "ram").chmod(0o755),
        lambda folder: os.truncate(folder / "ram", MIB),
        lambda folder: (folder / "more").write_bytes(b""),
    ],
    ids=["content", "name", "program", "size", "another file"],
)
def test_any_change_of_a_folder_changes_its_digest(change: object, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", {"ram": (False, [(0, b"content")], 10)})
    before = parcels.parcel_of(folder).digest
    assert callable(change)
    change(folder)
    assert before != parcels.parcel_of(folder).digest


def test_what_arrives_damaged_gets_no_name(tmp_path: Path, own_cache: Path) -> None:
    folder = folder_of(tmp_path / "a", {"ram": (False, [(0, b"content")], 10)})
    parcel = parcels.parcel_of(folder)
    for parts in parcels.messages(folder):
        lacking = [part for part in parts if not part.packed]
        parcels.receive(parcel, "s", lacking)
    with pytest.raises(HostError, match="arrived damaged"):
        parcels.finish(parcel, "s")
    assert not parcels.has(parcel)
    assert [] == list((own_cache / "parcels").iterdir())


def test_two_senders_of_one_parcel_do_not_mix(tmp_path: Path, own_cache: Path) -> None:
    folder = folder_of(tmp_path / "a", {"ram": (False, [(0, b"content")], 10)})
    parcel = parcels.parcel_of(folder)
    (parts,) = parcels.messages(folder)
    for sender in ("one", "two"):
        parcels.receive(parcel, sender, parts)
    for sender in ("one", "two"):
        parcels.finish(parcel, sender)
    assert [parcel.digest] == [path.name for path in (own_cache / "parcels").iterdir()]


def test_the_parcels_used_last_are_kept_and_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "_KEPT_BYTES", 3 * MIB // 2)
    sent: list[Parcel] = []
    for number in range(4):
        folder = folder_of(tmp_path / str(number), {"ram": (False, [(0, bytes([number + 1]) * MIB)], MIB)})
        with parcels.hold(sent[0]) if sent else nullcontext():
            sent.append(send(folder))
    # The first was in use all the time, and takes room.
    assert [True, False, False, True] == [parcels.has(parcel) for parcel in sent]


def test_a_host_says_what_it_lacks(tmp_path: Path) -> None:
    parcel = parcels.parcel_of(folder_of(tmp_path / "a", {"ram": (False, [], 10)}))
    assert not parcels.has(parcel)
    with pytest.raises(LackError), parcels.hold(parcel):
        pass


def test_a_parcel_without_room_is_refused_before_it_travels(tmp_path: Path) -> None:
    parcel = replace(parcels.parcel_of(folder_of(tmp_path / "a", {"ram": (False, [], 10)})), stored_bytes=1 << 60)
    with pytest.raises(HostError, match=r"needs .* MiB"):
        parcels.receive(parcel, "s", [])
