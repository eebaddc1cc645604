"""The reference of the manual says what the code says."""

from __future__ import annotations

import pytest

from tests.unit.docs import reference


@pytest.mark.parametrize("name", ["cli.md", *reference.PARTS])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    (wanted,) = [text for path, text in reference.pages() if path.name == name]
    assert wanted == (reference.FOLDER / name).read_text(), f"run {reference.COMMAND}, and commit docs/reference/{name}"


def test_the_page_of_commands_has_groups_options_and_no_empty_row() -> None:
    page = reference.commands()
    assert {"## rig run", "## rig image build", "## rig replay"} <= set(page.splitlines())
    assert "`--controls / --no-controls`" in page
    assert "|  |" not in page
