"""The command `rig sweep` in real machines: a value changes the loss, and the same command measures nothing twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rig.front import cli
from rig.store import Run

WORDS = (
    "sqlite-ext4-wal_normal_powercut", "--over", "wal_autocheckpoint=2,1000", "--transactions", "20",
    "--instants", "30", "--pause-ms", "200", "--no-controls",
)  # fmt: skip


def test_more_frequent_checkpoints_lose_less_and_the_same_command_measures_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["sweep", *WORDS])
    # Without controls nothing is green.
    assert 3 == result.exit_code, result.output
    (folder,) = Path("runs").iterdir()
    text = (folder / "sweep.html").read_text()
    found = re.findall(r'data-label="loses something">(all|[\d.]+ %)', text)
    often, rare = (100.0 if word == "all" else float(word.rstrip(" %")) for word in found)
    assert often < rare / 2
    recorded = {path: path.stat().st_mtime_ns for path in folder.glob("*/recordings/*/log-*")}
    judged = {path: path.read_bytes() for path in folder.glob("*/scenarios/*/verdicts.jsonl")}
    assert 2 == len(judged)
    again = CliRunner().invoke(cli.main, ["sweep", *WORDS])
    assert 3 == again.exit_code, again.output
    assert recorded == {path: path.stat().st_mtime_ns for path in folder.glob("*/recordings/*/log-*")}
    assert judged == {path: path.read_bytes() for path in folder.glob("*/scenarios/*/verdicts.jsonl")}
    assert [str(folder / "sweep.html")] == re.findall(r"page: (\S+)", again.output)
    values = {run.scenario(WORDS[0]).tuning["wal_autocheckpoint"] for run in map(Run.open, folder.glob("*=*"))}
    assert {"2", "1000"} == values
