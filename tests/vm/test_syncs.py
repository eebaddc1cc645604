"""The sync protocol in real recordings: engines that document none, make more syncs than they document, or fewer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.engines import outside as engines

RIG = Path(sys.executable).with_name("rig")
_LIMIT_S = 1200
_TWICE = {"            os.fdatasync(self._file)\n": "            os.fdatasync(self._file)\n" * 2}
_DOCUMENTED = {'return ("log-commit",)': 'return ("log-commit log-commit",)'}


def test_more_syncs_than_documented_and_none_documented_are_green_and_told_and_fewer_are_not(tmp_path: Path) -> None:
    engines.write(tmp_path, "bare", without=("syncs",))
    engines.write(tmp_path, "keen", driver=_TWICE)
    engines.write(tmp_path, "lax", syncs=_DOCUMENTED)
    scenarios = [f"{name}-ext4-always_powercut" for name in ("bare", "keen", "lax")]
    said = subprocess.run(
        [RIG, "run", *scenarios, "--profile", "smoke", "--run-dir", tmp_path / "run"], cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert 3 == said.returncode, said.stdout + said.stderr
    lines = said.stdout.splitlines()
    results = [line.split()[-1] for line in lines if line.split()[1:2] == ["always"]]
    assert ["kept", "kept", "inconclusive"] == results, said.stdout
    page = (tmp_path / "run" / "report.html").read_text().replace("&#39;", "'")
    for engine, told in {
        "bare": "no documented protocol: not compared",
        "keen": "a transaction syncs more than is documented: measured 'log log' (12), documented 'log'",
    }.items():
        assert [line for line in lines if line.startswith(f"syncs of {engine} (") and told in line], said.stdout
        assert told in page
    (line,) = [line for line in lines if line.startswith("inconclusive ")]
    assert line.startswith(f"inconclusive {scenarios[2]}: the syncs of a transaction are not the documented ones: ")
    assert "measured 'log' (12), documented 'log log'" in line
