"""Experiments with file systems in machines: FIEMAP tells the truth where the rig relies on it; a repair repairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from rig.analysis.documents import guestprobes
from rig.campaign import fileprobe
from rig.filesystems import Mirrored, filesystem_named
from rig.machines.guests import guests
from rig.planning import matrix

Figures = Callable[[str, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    with guests() as source:

        def of(word: str, name: str) -> Mapping[str, Any]:
            fault = "twodisk" if isinstance(filesystem_named(word), Mirrored) else "powercut"
            (scenario,) = matrix.select([f"sqlite-{word}-wal_full_{fault}"])
            return fileprobe.figures(source.of(scenario).verifier, word, name, guestprobes.__name__)

        yield of


@pytest.mark.parametrize("word", ["ext4", "ext3", "ext2", "xfs", "f2fs"])
def test_a_file_is_where_fiemap_says_where_the_rig_relies_on_that(word: str, figures: Figures) -> None:
    found = figures(word, "places")

    assert filesystem_named(word).maps_files
    assert found["file_bytes"] == found["found_bytes"] == found["right_bytes"]


# Not btrfs: its check does not repair a block whose checksum is wrong in both copies. F2fs corrects the hash of a
# name and calls the file system sound all the same, so it is the second repair that shows that the first one worked.
@pytest.mark.parametrize(
    ("word", "complaint"), [("ext4", "fails checksum"), ("xfs", "bad CRC for inode"), ("f2fs", "Mismatch hash_code")]
)
def test_a_damaged_file_system_is_whole_after_its_repair(word: str, complaint: str, figures: Figures) -> None:
    found = figures(word, "repair")

    assert found["sound"] == ""
    assert found["flipped"]
    assert word == "f2fs" or complaint in found["damaged"]
    assert complaint in found["repair"]
    assert found["repaired"] == ""
    assert complaint not in found["again"]
    assert found["files"] == 1


def test_a_dirty_mirror_without_checksums_reads_its_first_disk_and_copies_that_and_a_clean_one_reads_either(
    figures: Figures,
) -> None:
    found = figures("ext4.raid1", "resync")

    assert found["blocks"] == found["dirty_first"] == found["dirty_copied"]
    assert found["clean_first"] + found["clean_second"] == found["blocks"]
    assert min(found["clean_first"], found["clean_second"]) > 0
    assert found["clean_copied"] == 0
