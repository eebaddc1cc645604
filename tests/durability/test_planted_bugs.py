"""Bugs planted in SQLite: each patch applies, and each build does its work right while the power stays.

What a power cut shows of them takes minutes of virtual machines: `python -m tests.durability.planted_table`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rig.contract.errors import HostError
from rig.contract.findings import FindingKind
from tests.durability import planting
from tests.durability.planting import Planted

# Import modules that need numpy or a machine where they are used, so that collection takes only milliseconds.
if TYPE_CHECKING:
    from rig.engines.builds import Library

_ALL = planting.planted()
_BUGS = [one for one in _ALL if not one.is_harmless]
_TWINS = [one for one in _ALL if one.is_harmless]


@pytest.fixture(scope="module")
def patched() -> dict[str, Library]:
    return planting.libraries(_ALL)


def test_there_are_at_least_twelve_bugs_that_only_a_cut_shows_and_four_twins() -> None:
    assert sum(one.needs_cut for one in _BUGS) >= 12
    assert 4 == len(_TWINS)


@pytest.mark.parametrize("one", _ALL, ids=lambda one: one.name)
def test_a_patched_build_does_its_work_while_the_power_stays(
    one: Planted, patched: dict[str, Library], tmp_path: Path
) -> None:
    found = planting.worked(one, patched[one.name], tmp_path)
    is_right = (FindingKind.PREFIX, planting.PROFILE.transaction_count) == (found.kind, found.recovered)
    assert one.needs_cut is is_right, found.detail


def test_a_patch_that_no_longer_applies_is_named(tmp_path: Path) -> None:
    from tests.durability import builds

    patch = tmp_path / "of-another-release.patch"
    patch.write_text("--- a/sqlite3.c\n+++ b/sqlite3.c\n@@ -1 +1 @@\n-not in any release\n+either\n")
    with pytest.raises(HostError, match=r"of-another-release\.patch does not apply to this release of SQLite"):
        builds.shared_library(planting.RELEASE, patch)
