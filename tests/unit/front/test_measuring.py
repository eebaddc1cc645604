"""Which stopped run a command goes on with, and why not with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.front import measuring
from rig.front.rundirs import REPORT, RUNS
from rig.store import Run


class Sayings:
    """A progress that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def says(self, text: str) -> None:
        self.lines.append(text)

    def expect(self, count: int) -> None:
        """Take no note."""

    def advance(self, count: int) -> None:
        """Take no note."""


@pytest.mark.parametrize(
    ("change", "is_finished", "line"),
    [
        ({}, False, "resuming the stopped run in runs/2026-11-30-120000"),
        ({}, True, "run directory runs/"),
        (
            {"templates": {"base": ["other"]}},
            False,
            "the stopped run in runs/2026-11-30-120000 is not resumed: its machines are gone from the cache",
        ),
        ({"templates": {"base": ["other"]}}, True, "run directory runs/"),
        ({"profile": "smoke"}, False, "run directory runs/"),
        ({"focus": "compaction"}, False, "run directory runs/"),
    ],
)
def test_a_stopped_run_goes_on_if_all_is_equal_and_is_named_if_only_its_machines_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], is_finished: bool, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    definition = {
        "profile": "quick",
        "scenarios": ["a"],
        "orders": {"a": {"lives": ()}},
        "templates": {"base": ["one"]},
    }
    stopped = RUNS / "2026-11-30-120000"
    Run.create(stopped, definition)
    if is_finished:
        (stopped / REPORT).write_text("")
    progress = Sayings()
    run = measuring._target_run(None, definition | change, progress)
    assert progress.lines[0].startswith(line), progress.lines
    assert (stopped == run.folder) is line.startswith("resuming")
