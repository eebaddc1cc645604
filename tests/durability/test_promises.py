"""The product: every scenario of the matrix keeps the promise of the engine's documentation.

`pytest -k wal_normal_powercut` runs one scenario. It is green only if nothing broke its promise, its exposure is
sufficient, and the controls of its group fired.
"""

from __future__ import annotations

from rig.front.pytest_plugin import Measured


def test_promise(durability: Measured) -> None:
    durability.check()
