"""The reference of the manual says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import reference
from tests.unit.house import ROOT

WANTED = dict(reference.pages())


@pytest.mark.parametrize("page", WANTED, ids=lambda page: page.name)
def test_a_generated_page_is_up_to_date(page: Path) -> None:
    assert WANTED[page] == page.read_text(), f"run {reference.COMMAND}, and commit {page.relative_to(ROOT)}"


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = WANTED[reference.FOLDER / "cli.md"]
    assert {"## rig run", "## rig image build", "## rig replay"} <= set(page.splitlines())
    assert "--profile" in page
