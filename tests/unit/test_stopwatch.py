"""The bytes of a trial are those of its process and of everything that it started, such as a server."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rig.trials import stopwatch


def test_the_family_of_a_process_is_it_its_children_and_theirs() -> None:
    line = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True) as shell:
        try:
            assert shell.stdout
            sleeper = int(shell.stdout.readline())
            found = [path.name for path in stopwatch._family(Path("/proc/self"))]
            assert "self" == found[0]
            assert {str(shell.pid), str(sleeper)} <= set(found)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_bytes_of_descendants_count_and_what_cannot_be_read_makes_them_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch, "_PROCESSES", tmp_path)
    for name, size, children in (("self", 1, "5 6"), ("5", 20, ""), ("6", 300, "7"), ("7", 4000, "")):
        thread = tmp_path / name / "task" / "1"
        thread.mkdir(parents=True)
        (thread / "children").write_text(children)
        (tmp_path / name / "io").write_text(f"rchar: 9\nwrite_bytes: {size}\ncancelled_write_bytes: 0\n")
    assert 4321 == stopwatch._written()
    (tmp_path / "7" / "io").unlink()
    assert stopwatch._written() is None
