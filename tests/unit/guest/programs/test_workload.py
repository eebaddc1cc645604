"""The workload when its engine fails although nothing was cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.orders import Orders
from rig.guest.programs import workload
from rig.guest.site import Site
from rig.guest.watch.forks import EngineFailed, Fork
from rig.planning import matrix

NUMBER = 3


@pytest.fixture
def orders() -> Orders:
    (found,) = matrix.select(["sqlite-ext4-delete_off_powercut"])
    return replace(found, workload=replace(found.workload, transaction_count=6, think_ms=0, rest_ms=0)).orders


def _before(number: int, what: Callable[[], object]) -> Callable[[str], None]:
    return lambda mark: what() if mark == f"begin-{number}" else None  # type: ignore[return-value]


def _run_apart(site: Site, mark: Callable[[str], None]) -> None:
    """Run the workload in a process of its own, as a recorder does: it leaves its database open."""
    Fork(lambda send: send(workload.run(site, mark))).wait().require("the workload")


def test_a_database_that_is_damaged_without_a_cut_is_the_engines_failure_in_one_line(
    orders: Orders, tmp_path: Path
) -> None:
    (place := tmp_path / "data").mkdir()

    def damage() -> None:
        database = place / "test.db"
        size = database.stat().st_size
        with database.open("r+b") as file:
            # The counter of changes, too, so that the connection reads its pages again.
            file.seek(24)
            file.write(b"\x7f" * 4)
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))

    with pytest.raises(EngineFailed) as failed:
        _run_apart(Site(orders, str(place)), _before(NUMBER, damage))
    (line,) = str(failed.value).splitlines()
    assert f"in transaction {NUMBER} of ledger sqlite failed: DatabaseError: database disk image is malformed" in line
    assert "nothing was cut" in line


def test_a_mistake_of_the_rig_is_not_the_engines(orders: Orders, tmp_path: Path) -> None:
    def stumble() -> None:
        raise LookupError("a mistake")

    with pytest.raises(RuntimeError, match="LookupError: a mistake") as failed:
        _run_apart(Site(orders, str(tmp_path)), _before(NUMBER, stumble))
    assert not isinstance(failed.value, EngineFailed)
