"""The run directories below runs/: which is the newest."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from rig.front.rundirs import newest_run, runs


def made(name: str, when: str) -> None:
    manifest = Path("runs", name, "manifest.json")
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    seconds = datetime.fromisoformat(when).timestamp()
    os.utime(manifest, (seconds, seconds))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_that_the_user_named_is_not_newer_than_a_later_one() -> None:
    made("base", "2026-01-02T10:00:00")
    made("2026-01-02-110000", "2026-01-02T11:00:00")
    assert "2026-01-02-110000" == newest_run().name
    made("another", "2026-01-02T12:00:00")
    assert ["another", "2026-01-02-110000", "base"] == [folder.name for folder in runs()]


def test_runs_that_were_copied_keep_their_order() -> None:
    made("2026-01-02-110000", "2026-03-01T00:00:01")
    made("2026-01-03-110000", "2026-03-01T00:00:00")
    assert "2026-01-03-110000" == newest_run().name
