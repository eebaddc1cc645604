"""Bugs planted in SQLite: each is found, and no harmless change of the same places is taken for one.

The workload is `life`, in the counts of the quick profile. `python -m tests.durability.planted_table` prints what the
ledger finds as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    from rig.machines.campaign import Machines

Say = Callable[[str, object], None]
Find = Callable[[Planted], planting.Found]
_ALL = planting.planted()
_BUGS = [one for one in _ALL if not one.is_harmless]
_TWINS = [one for one in _ALL if one.is_harmless]


@pytest.fixture(scope="module")
def patched() -> dict[str, Library]:
    return planting.libraries(_ALL)


@pytest.fixture(scope="module")
def machines_with_patched_builds(patched: dict[str, Library]) -> Iterator[Machines]:
    from rig.machines import campaign

    with campaign.machines(campaign.Silent(), list(patched.values())) as machines:
        yield machines


@pytest.fixture
def found_in(
    machines_with_patched_builds: Machines, patched: dict[str, Library], tmp_path: Path, record_property: Say
) -> Find:
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else 0

    def find(one: Planted) -> planting.Found:
        wanted = planting.scenario(one, "life", patched[one.name].name)
        found = planting.measured(wanted, machines_with_patched_builds, tmp_path / "run", jobs)
        record_property(wanted.id, found.text)
        print(f"{one.name}: {found.text}\n{found.reasons}")  # noqa: T201 - pytest shows it with -rA, -s and on failure
        return found

    return find


def test_there_are_twelve_bugs_and_four_twins() -> None:
    assert (12, 4) == (len(_BUGS), len(_TWINS))


@pytest.mark.parametrize("one", _ALL, ids=lambda one: one.name)
def test_a_patched_build_does_its_work_while_the_power_stays(
    one: Planted, patched: dict[str, Library], tmp_path: Path
) -> None:
    found = planting.worked(one, patched[one.name], tmp_path)
    assert (FindingKind.PREFIX, planting.PROFILE.transaction_count) == (found.kind, found.recovered), found.detail


@pytest.mark.parametrize("one", _BUGS, ids=lambda one: one.name)
def test_a_planted_bug_breaks_the_promise(one: Planted, found_in: Find) -> None:
    found = found_in(one)
    assert found.first is not None, found.reasons


@pytest.mark.parametrize("one", _TWINS, ids=lambda one: one.name)
def test_a_harmless_change_breaks_no_promise(one: Planted, found_in: Find) -> None:
    found = found_in(one)
    assert found.first is None, found.reasons
    assert found.is_exposed, found.reasons


def test_a_patch_that_no_longer_applies_is_named(tmp_path: Path) -> None:
    from tests.durability import builds

    patch = tmp_path / "of-another-release.patch"
    patch.write_text("--- a/sqlite3.c\n+++ b/sqlite3.c\n@@ -1 +1 @@\n-not in any release\n+either\n")
    with pytest.raises(HostError, match=r"of-another-release\.patch does not apply to this release of SQLite"):
        builds.shared_library(planting.RELEASE, patch)
