"""The report of the claims: what it holds, and which measurements it shows next to a document's own figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rig.analysis.documents.page import page_html, write_page
from tests.unit.analysis.documents.test_claim_evidence import answer_page, speeds


def test_the_page_fetches_nothing_shows_text_as_text_and_repeats_to_the_byte(tmp_path: Path) -> None:
    page = page_html([answer_page()], [speeds(10, 150, 100)], [("run", "<i>a</i>")])
    assert page == page_html([answer_page()], [speeds(10, 150, 100)], [("run", "<i>a</i>")])
    assert "<i>a</i>" not in page
    assert "e1&lt;b&gt;" in page
    assert not [word for word in ("http://", "https://", "src=", "@import", "url(") if word in page]
    for text in (
        "S9-1",
        "WAL loses nothing.",
        "refuted",
        "it lost 1",
        "Nothing is lost.",
        "a book",
        "300 / 100",
        "by more than a third",
        "009_x.txt line 5: tx/s of wal is 3 of delete, here 1.5 (",
    ):
        assert text in page
    assert "tx/s of wal is 3 of delete" not in page_html([answer_page()], [speeds(10, 300, 100)], [])
    write_page([answer_page()], [], [], tmp_path / "deep" / "claims.html")
    assert (tmp_path / "deep" / "claims.html").read_text().startswith("<!doctype html>")


def test_the_page_keeps_the_last_measurement_on_each_file_system_real_and_virtual() -> None:
    real, other = speeds(10, 150, 100), replace(speeds(10, 250, 100), filesystem="fs2")
    modelled = {"filesystem": "fs2", "device": "d", "delays": "1 ms", "clock": "c", "qemu": "1"}
    later = speeds(10, 200, 100)
    page = page_html([answer_page()], [real, other, replace(other, virtual=modelled), later], [])
    headings = [line for line in page.splitlines() if line.startswith("<h3>Its figures")]
    assert [f"<h3>Its figures beside ours on {on}</h3>" for on in ("fs", "fs2", "fs2, virtual")] == headings
    assert "here 1.5 (" not in page
