"""A processor of its own for each worker of pytest-xdist, and for all machines that its tests start.

Workers that each start a machine for every processor get in each other's way: the same tests take a quarter longer.
"""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_processor() -> None:
    """Keep a worker, and what it starts, on one processor; without workers nothing changes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[int(worker.removeprefix("gw")) % len(processors)]})
