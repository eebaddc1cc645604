"""What a user's program prints on standard error is kept, whatever its exit code: the first words and the last ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.contract.findings import Finding, FindingKind
from rig.engines.own import NoResult, Task
from rig.engines.program import driver
from rig.guest.programs import creations
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from tests.leaks import as_if_the_process_ended

# More than is kept, with a first and a last line that must be.
_TALE = "echo panic: the index is short >&2; seq 9999 >&2; echo ValueError: page 7 >&2"
_KEPT = "it said: panic: the index is short 1 2 3 "


@pytest.fixture
def recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Finding]]:
    """Recover by a script, in a directory with one file, and in the same directory below a directory of creations."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    folder = tmp_path / "data" / "1"
    folder.mkdir(parents=True)
    (folder / "log").write_text("1\n")

    def recover(script: str) -> Finding:
        (tmp_path / "program").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "program").chmod(0o755)
        return driver.recovered(
            lambda words: Child(words, str(folder), is_confined=False),
            Task({"library": "program", "promise": "durable"}, str(folder), 7, 1),
        )

    with as_if_the_process_ended():
        yield recover
        kill_children()


@pytest.mark.parametrize("ending", ["", "; sleep 0.2"], ids=["at once", "later"])
def test_a_blank_last_line_is_answered_the_same_whenever_the_program_ends(
    recovered: Callable[[str], Finding], ending: str
) -> None:
    with pytest.raises(NoResult, match="answered ''"):
        recovered(f"printf 'have 1\\n\\n'{ending}")


@pytest.mark.parametrize(
    ("answer", "count"), [("echo have 1", 1), (":", 0), ("echo torn 1 half", 0)], ids=["whole", "lost", "torn"]
)
def test_a_recovery_that_says_why_and_exits_with_0_is_quoted(
    recovered: Callable[[str], Finding], answer: str, count: int
) -> None:
    finding = recovered(f"{_TALE}; {answer}")
    assert (FindingKind.PREFIX, count) == (finding.kind, finding.recovered)
    assert _KEPT in finding.detail
    assert finding.detail.endswith(" 9998 9999 ValueError: page 7")
    assert " ... " in finding.detail
    assert len(finding.detail) < 2000


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (f"{_TALE}; exit 3", "unopenable"),
        (f"{_TALE}; kill -SEGV $$", "died"),
        (f"{_TALE}; echo nonsense", "corrupt"),
        (f"{_TALE}; echo >> log; [ $(wc -l < log) = 2 ] && echo have 1", "fickle"),
    ],
)
def test_a_recovery_that_fails_is_quoted(recovered: Callable[[str], Finding], script: str, kind: str) -> None:
    with pytest.raises(NoResult) as caught:
        recovered(script)
    assert kind == caught.value.kind
    assert _KEPT in caught.value.words
    assert "9999 ValueError: page 7" in caught.value.words


def test_a_line_that_was_cut_in_two_is_not_quoted_in_part(recovered: Callable[[str], Finding]) -> None:
    middle = recovered("seq -f 'line%03gend' 999 >&2").detail.partition(" ... ")[2]
    assert middle.startswith("line")
    assert middle.endswith("line999end")


def test_words_of_a_creation_do_not_make_it_torn(
    recovered: Callable[[str], Finding], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creations, "_WHOLE", set())
    recovered("echo I start afresh >&2")
    finding = creations.recovered(
        driver,
        lambda folder, words: Child(words, folder, is_confined=False),
        Task({"library": "program", "promise": "atomic"}, str(tmp_path / "data"), 7, 1),
    )
    assert (FindingKind.PREFIX, 0, "in directory 1: it said: I start afresh") == (
        finding.kind, finding.recovered, finding.detail,
    )  # fmt: skip
    recovered("echo torn 1 half")
    torn = creations.recovered(
        driver,
        lambda folder, words: Child(words, folder, is_confined=False),
        Task({"library": "program", "promise": "durable"}, str(tmp_path / "data"), 7, 1),
    )
    assert ("torn 1 torn 1 half", False) == (torn.detail, "in directory" in torn.detail)
