"""What holds for every test: how hypothesis chooses examples, and that a test leaves nothing behind in its process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import leaks
from tests.durations import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_terminal_summary",
]

# Each run tries new examples, in CI too, where hypothesis would try the same ones every time; what fails comes with a
# line that shows it again. That the machine is busy says nothing about the code. Only `make check` repeats them.
settings.register_profile(
    "contributor", derandomize=False, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    max_examples=100,
)  # fmt: skip
settings.register_profile(
    "check", settings.get_profile("contributor"), derandomize=True, database=None, max_examples=10
)
settings.register_profile("nightly", settings.get_profile("contributor"), max_examples=1000)
settings.load_profile("contributor")


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that ends with more descriptors, mappings of deleted files, threads or children than before."""
    with leaks.nothing_left_behind():
        yield
    # The guest's code freezes what it will keep for good. A library that is frozen here calls its objects leaked at the
    # end of the process.
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def no_template_kept_in_the_end() -> Iterator[None]:
    """Fail if a template is still in use after all fixtures of modules and of the session, which may keep them."""
    yield
    assert not (kept := leaks.templates_in_use()), f"still in use at the end: {', '.join(sorted(kept))}"


_OUT_OF_TIME = "not run: the time for all tests (RIG_TESTS_END) is over"


def pytest_runtest_setup() -> None:
    """Turn each test red that has not begun in time, so that a run that is cut short names what it did not check."""
    end = os.environ.get("RIG_TESTS_END")
    if end and time.time() > float(end):
        pytest.fail(_OUT_OF_TIME, pytrace=False)
