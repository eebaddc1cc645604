"""The product: every scenario of the matrix keeps what the engine's documentation promises for it.

`pytest -k wal_normal_powercut` runs one scenario. It is green only if nothing broke its promise, enough was looked at,
and the controls of its group fired.
"""

from __future__ import annotations

from rig.front.pytest_plugin import Measured


def test_promise(durability: Measured) -> None:
    durability.check()
