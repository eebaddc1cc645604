"""Where speed may be measured: mounts, the disks below them, what they count, and places without a disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rig.contract.errors import UsageError
from rig.speed.place import Mount, mount_of, mounts_in, place_of
from rig.speed.trials import disks
from rig.speed.trials.disks import Counters
from rig.speed.trials.probe import MEDIUM_S_MIN, SyncProbe, probe

MEMORY = "/dev/shm"  # noqa: S108 - it is memory, which is the point
WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=","), min_size=1, max_size=8
)
PATH = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6), max_size=4)


def escaped(text: str) -> str:
    """As the kernel's mangle(): blank, tab, newline, backslash and hash."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


@example([], "0", [], ["-"], [])
@given(PATH, WORD, PATH, st.lists(WORD, min_size=1, max_size=3, unique=True), st.lists(WORD, max_size=2))
def test_a_line_of_mountinfo_is_read_as_it_was_written(
    point: list[str], kind: str, source: list[str], options: list[str], tags: list[str]
) -> None:
    names = ("/" + "/".join(point), "/" + "/".join(source))
    first, *rest = options
    tagged = "".join(f" {tag}" for tag in tags if tag != "-")
    line = f"36 35 98:0 / {escaped(names[0])} {escaped(first)}{tagged} - {escaped(kind)} {escaped(names[1])} "
    line += ",".join(map(escaped, rest)) or escaped(first)
    assert [Mount(names[0], escaped(kind), names[1], tuple(options))] == mounts_in(line)


@given(st.text(max_size=60))
def test_what_is_no_mountinfo_raises_value_error_or_is_read(text: str) -> None:
    lines = [line for line in text.split("\n") if line]
    if all(" - " not in line for line in lines) and lines:
        with pytest.raises(ValueError, match="no line of mountinfo"):
            mounts_in(text)
    else:
        assert len(lines) >= len(_read(text))


def _read(text: str) -> list[Mount]:
    try:
        return mounts_in(text)
    except ValueError:
        return []


@given(st.lists(PATH, max_size=6), PATH)
def test_a_path_is_on_the_innermost_mount_above_it(points: list[list[str]], path: list[str]) -> None:
    mounts = [Mount("/" + "/".join(point), str(number), "", ()) for number, point in enumerate(points)]
    above = [(len(point), number) for number, point in enumerate(points) if path[: len(point)] == point]
    found = mount_of("/" + "/".join(path), mounts)
    deepest = max(above, default=None)
    assert (None if deepest is None else str(deepest[1])) == (found.kind if found else None)


def test_memory_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"shm is on tmpfs, which keeps its files in memory .* rig speed --dir PATH"):
        place_of(Path(MEMORY))


def test_an_overlay_on_memory_is_refused_and_one_whose_layers_are_out_of_sight_is_warned_of(tmp_path: Path) -> None:
    tree = tmp_path / "mounts"
    real = Path("/proc/self/mountinfo").read_text()
    line = f"99 1 0:77 / {tmp_path} rw - overlay overlay rw,lowerdir=/,upperdir=%s,workdir=/w\n"
    tree.write_text(real + line % MEMORY)
    with pytest.raises(UsageError, match=r"overlay at .* is kept elsewhere: .*shm is on tmpfs"):
        place_of(tmp_path, tree)
    tree.write_text(real + line % "/nowhere/to/be/seen")
    place = place_of(tmp_path, tree)
    assert ("overlay", ()) == (place.filesystem, place.disks)
    assert "no disk can be seen below overlay: its flushes are not counted" in place.warnings


def test_a_mount_without_barriers_is_warned_of(tmp_path: Path) -> None:
    tree = tmp_path / "mounts"
    tree.write_text("99 1 0:77 / / rw,nobarrier - xfs /dev/none rw\n")
    assert "xfs is mounted with nobarrier: a sync does not reach the disk" in place_of(tmp_path, tree).warnings


def sysfs(folder: Path) -> Path:
    """A disk sda with a partition, a target on the partition and one on sdb, and their nodes."""
    nodes, devices = folder / "dev", folder / "devices"
    for name in ("sda/sda1", "sdb", "dm-0/slaves", "loop0/loop"):
        (devices / name).mkdir(parents=True)
    (devices / "sda/sda1/partition").write_text("1\n")
    for name in ("sda/sda1", "sdb"):
        (devices / "dm-0/slaves" / Path(name).name).symlink_to(devices / name)
    (devices / "loop0/loop/backing_file").write_text("/var/image\n")
    nodes.mkdir()
    for node, name in (("8:0", "sda"), ("8:1", "sda/sda1"), ("8:16", "sdb"), ("253:0", "dm-0"), ("7:0", "loop0")):
        (nodes / node).symlink_to(devices / name)
    return nodes


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("8:0", ["sda"]),
        ("8:1", ["sda"]),
        ("8:16", ["sdb"]),
        ("253:0", ["sda", "sdb"]),
        ("7:0", ["loop0"]),
        ("0:99", []),
    ],
)
def test_counters_are_those_of_the_whole_disks_below(tmp_path: Path, device: str, expected: list[str]) -> None:
    assert expected == [disk.name for disk in disks.disks_of(device, sysfs(tmp_path))]


COUNT = st.integers(0, 2**50)


@given(st.lists(COUNT, min_size=17, max_size=17), st.sampled_from([11, 15, 17]))
def test_a_line_of_statistics_is_read_by_the_kernels_documentation(values: list[int], length: int) -> None:
    read = disks.parse(" ".join(map(str, values[:length])) + "\n")
    flushes = (values[15], values[16]) if length == 17 else (None, None)
    assert Counters(values[4], values[6] * 512, *flushes) == read


@given(st.text(max_size=40))
def test_anything_else_is_no_statistics(text: str) -> None:
    if len(text.split()) < 11:
        with pytest.raises(ValueError, match=r"no statistics of a block device|invalid literal"):
            disks.parse(text)


@given(st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT), min_size=1, max_size=4), st.booleans())
def test_several_disks_are_summed_and_one_that_counts_no_flushes_leaves_none(
    rows: list[tuple[int, int, int, int]], blind: bool
) -> None:
    read = [Counters(*row) for row in rows] + ([Counters(1, 1, None, None)] if blind else [])
    summed = disks.total(read)
    assert sum(row[0] for row in rows) + blind == summed.write_count
    assert (None if blind else sum(row[2] for row in rows)) == summed.flush_count
    assert Counters(0, 0, *((None, None) if blind else (0, 0))) == summed.since(summed)


def test_a_probe_of_a_real_disk_leaves_nothing_and_knows_whether_flushes_arrive(tmp_path: Path) -> None:
    found = probe(tmp_path, place_of(tmp_path).disks)
    assert 0 < found.sync_s_min <= found.sync_s
    assert found.flush_per_sync is None or found.flush_per_sync >= 0
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sync_s", "flushes", "expected"),
    [
        (MEDIUM_S_MIN * 0.9, 1.0, ["it ends in a cache"]),
        (MEDIUM_S_MIN, 1.0, []),
        (0.008, None, []),
        (0.008, 0.0, ["0.00 flushes arrived"]),
        (5e-6, 0.0, ["it ends in a cache", "0.00 flushes arrived"]),
    ],
)
def test_a_sync_that_no_medium_can_do_is_warned_of(sync_s: float, flushes: float | None, expected: list[str]) -> None:
    found = SyncProbe(0.01, sync_s, flushes).warnings
    assert len(expected) == len(found)
    assert all(text in line for text, line in zip(expected, found, strict=True))
