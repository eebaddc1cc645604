"""Bugs planted in SQLite: each patch applies, and `life` finds one of them and nothing in a harmless change.

What is found of all the others takes half an hour of virtual machines: `python -m tests.durability.planted_table`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rig.contract.errors import HostError
from rig.planning.matrix import Profile
from tests.durability import planting
from tests.durability.planting import Found, Planted

# Import modules that need numpy or a machine where they are used, so that collection takes only milliseconds.
if TYPE_CHECKING:
    from rig.engines.builds import Library
    from rig.machines.guests import Machines

_ALL = {one.name: one for one in planting.all_planted()}
_BUG, _TWIN = _ALL["close-unsynced"], _ALL["twin-partial-checkpoint-synced"]
_RECOVERY_BUG, _OVERLAP_BUG = _ALL["hot-rollback-unsynced"], _ALL["checkpoint-published-before-sync"]
# Two rounds of `life`.
_LOOK = Profile("planted", 28, states_max=60, instants=20, exposure_min=30, repeats="none")


def test_there_are_at_least_twelve_bugs_and_four_harmless_changes() -> None:
    twins = [one for one in _ALL.values() if one.is_harmless]
    assert len(_ALL) - len(twins) >= 12
    assert 9 == len(twins)
    # What a twin needs is nothing; a bug without a situation could not be explained.
    assert [one.name for one in twins] == [name for name, one in _ALL.items() if not one.needs]


def test_every_patch_changes_the_release_that_it_is_for(tmp_path: Path) -> None:
    from tests.durability import builds

    source, code = builds.source(builds.PLANTED_IN), tmp_path / "sqlite3.c"
    for one in _ALL.values():
        shutil.copy(source, code)
        builds.apply(one.patch, code)


def test_a_patch_that_no_longer_applies_is_named(tmp_path: Path) -> None:
    from tests.durability import builds

    patch = tmp_path / "of-another-release.patch"
    patch.write_text("--- a/sqlite3.c\n+++ b/sqlite3.c\n@@ -1 +1 @@\n-not in any release\n+either\n")
    with pytest.raises(HostError, match=r"of-another-release\.patch does not apply to this release of SQLite"):
        builds.patch_build(patch)


@pytest.mark.parametrize("one", [_BUG, _TWIN], ids=lambda one: one.name)
def test_a_patched_build_loses_nothing_while_the_power_stays(
    one: Planted, guests_builds: dict[str, Library], tmp_path: Path
) -> None:
    assert planting.needs_cut(one, guests_builds[one.name], tmp_path)


def test_life_finds_a_planted_bug_and_nothing_in_a_harmless_change(
    machines_with_builds: Machines, guests_builds: dict[str, Library], tmp_path: Path
) -> None:
    def find(one: Planted) -> Found:
        wanted = planting.scenarios(one, [("life", "powercut")], guests_builds[one.name].name, _LOOK)
        (found,) = planting.measure(wanted, machines_with_builds, tmp_path / one.name, _LOOK)
        return found

    # What the ledger finds is left to chance: it too closes its last connection once, at its end.
    bug, twin = find(_BUG), find(_TWIN)
    assert "broken" == bug.result, bug.reasons
    assert "kept" == twin.result, twin.reasons


# The second needs a commit that begins and ends within a sync of a checkpoint, which is rare unless the sync is held.
@pytest.mark.parametrize(
    ("bug", "way"),
    [(_RECOVERY_BUG, ("ledger", "recoverycut")), (_OVERLAP_BUG, ("writers", "powercut"))],
    ids=[_RECOVERY_BUG.name, _OVERLAP_BUG.name],
)
def test_a_bug_that_needs_a_way_of_its_own_is_found(
    machines_with_builds: Machines, guests_builds: dict[str, Library], tmp_path: Path, bug: Planted, way: planting.Way
) -> None:
    wanted = planting.scenarios(bug, [way], guests_builds[bug.name].name)
    (found,) = planting.measure(wanted, machines_with_builds, tmp_path / "run")
    assert "broken" == found.result, found.reasons
