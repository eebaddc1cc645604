"""What `make docs` builds the manual with: pinned packages, and a navigation that has every page."""

from __future__ import annotations

import re

from tests.unit.house import ROOT

DOCS = ROOT / "docs"
# The hook adds these in the order of their index.
FINDINGS = "findings/"


def test_the_lock_of_the_manual_pins_with_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements-docs.lock").read_text()
    pins = [block for block in re.split(r"\n(?=\S)", lock.strip()) if not block.startswith("#")]
    pattern = re.compile(r"[\w.-]+==\S+[^\n]*\\\n    --hash=sha256:[0-9a-f]{64}")
    assert [] == [block for block in pins if not pattern.match(block)]
    assert "://" not in lock
    wanted = re.findall(r"^([\w-]+)", (ROOT / "requirements-docs.in").read_text(), re.MULTILINE)
    assert set(wanted) <= {block.partition("==")[0] for block in pins}


def test_nothing_that_a_run_installs_is_for_the_manual() -> None:
    assert "mkdocs" not in (ROOT / "requirements.lock").read_text()


def test_the_navigation_has_every_page_once() -> None:
    listed = re.findall(r"^ +- (?:\w+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md"))]
    assert sorted(page for page in listed if not page.startswith("project/")) == sorted(
        page for page in pages if not page.startswith(FINDINGS) or page == f"{FINDINGS}index.md"
    )
    index = (DOCS / FINDINGS / "index.md").read_text()
    findings = [page.removeprefix(FINDINGS) for page in pages if page.startswith(FINDINGS)]
    assert {"index.md"} == {page for page in findings if f"]({page})" not in index}


def test_the_makefile_keeps_the_manual_out_of_what_a_run_installs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    users = re.findall(r"^([\w-]+):.*\$\(DOCS_STAMP\)", makefile, re.MULTILINE)
    assert ["docs"] == users
