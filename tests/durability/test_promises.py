"""The product: every cell of the matrix keeps what the engine's documentation promises for it.

`pytest -k wal_normal_powercut` runs one cell. A cell is green only if nothing broke its promise, enough was looked at,
and the controls of its group fired.
"""

from __future__ import annotations

import pytest

from rig.analysis.outcome import Result
from rig.front.pytest_plugin import Measured


def test_promise(durability_cell: Measured) -> None:
    # Under a shim that swallows fsync the promise has to break: that is how the rig shows that it would notice.
    expected = Result.BROKEN if durability_cell.row.is_sabotaged else Result.KEPT
    result = durability_cell.row.judgement.result
    if durability_cell.is_expected_survivor:
        # A sync that does not matter here may be left out; that it is noticed all the same is no failure either.
        expected = result if result is not Result.INCONCLUSIVE else Result.KEPT
    if result is not expected:
        pytest.fail(f"{result}, expected {expected}\n{durability_cell.text()}", pytrace=False)
