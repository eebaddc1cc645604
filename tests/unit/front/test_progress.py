"""Progress without a terminal: lines, also while nothing comes to an end."""

from __future__ import annotations

import threading
import time

import pytest

from rig.front import progress


def test_a_silence_is_ended_by_a_line_that_says_how_far_it_has_come(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "_SILENT_S_MAX", 0.02)
    printed = ""
    with progress.show() as lines:
        lines.expect(3)
        lines.advance(1)
        while "no news" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().err
    assert "1 of 3 cuts judged so far; at work, with no news for 0 s\n" in printed
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_what_goes_on_is_not_called_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.01)
    with progress.show() as lines:
        lines.says("a line")
        time.sleep(0.1)
    assert "a line\n" == capsys.readouterr().err
