"""Builds of SQLite for the guest, and machines that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.vm.processors import own_processor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.engines.builds import Library
    from rig.machines.guests import Machines

__all__ = ["own_processor"]

# Of the matrix, what `make test` measures, with the controls of each.
_REPRESENTATIVE = frozenset({
    "sqlite-ext4-wal_full_powercut", "sqlite-ext4-wal_normal_powercut", "sqlite-ext4-wal_off_powercut",
    "sqlite-ext4-delete_extra_torn", "sqlite-ext4-delete_off_torn",
})  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.partition("[")[2].removesuffix("]") in _REPRESENTATIVE:
            item.add_marker(pytest.mark.representative)


@pytest.fixture(scope="module")
def guests_builds() -> dict[str, Library]:
    from tests.durability import builds

    return builds.for_the_guest()


@pytest.fixture(scope="module")
def machines_with_builds(guests_builds: dict[str, Library]) -> Iterator[Machines]:
    from rig.machines.guests import guests
    from rig.planning import matrix

    (any_one,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    with guests(list(guests_builds.values())) as source:
        yield source.of(any_one)
