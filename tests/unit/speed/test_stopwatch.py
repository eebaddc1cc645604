"""The bytes of a trial are the bytes of its process and of everything that it started, such as a server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rig.speed.trials import stopwatch


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
    assert 4321 == stopwatch._written_bytes()
    (tmp_path / "7" / "io").unlink()
    assert stopwatch._written_bytes() is None


def test_the_processor_time_is_that_of_descendants_that_live_too() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "echo; while :; do :; done"], stdout=subprocess.PIPE) as shell:
        try:
            assert shell.stdout
            shell.stdout.readline()
            before_s, begin_s = stopwatch._cpu_s(), time.monotonic()
            while _own_s(shell.pid) < 0.3 and time.monotonic() < begin_s + 60:
                time.sleep(0.01)
            after_s = stopwatch._cpu_s()
            assert before_s is not None
            assert after_s is not None
            # The kernel gives the time of others in hundredths of a second.
            assert 0.28 <= after_s - before_s + 0.02
        finally:
            shell.kill()


def _own_s(pid: int) -> float:
    return stopwatch._ticks(Path(f"/proc/{pid}")) / os.sysconf("SC_CLK_TCK")


def test_the_processor_time_of_a_process_with_any_name_is_read_and_is_unknown_if_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch, "_PROCESSES", tmp_path)
    for name, children in (("self", "5"), ("5", "")):
        (tmp_path / name / "task" / "1").mkdir(parents=True)
        (tmp_path / name / "task" / "1" / "children").write_text(children)
    fields = "S 1 5 5 0 -1 4194560 100 0 0 0 {} {} {} {} 20 0 1 0 42"
    stat = tmp_path / "5" / "stat"
    stat.write_text("5 (a) S 1 (b) " + fields.format(0, 0, 0, 0))
    before_s = stopwatch._cpu_s()
    stat.write_text("5 (a) S 1 (b) " + fields.format(100, 200, 3000, 40000))
    after_s = stopwatch._cpu_s()
    assert before_s is not None
    assert after_s is not None
    assert pytest.approx(43300 / os.sysconf("SC_CLK_TCK"), abs=1) == after_s - before_s
    stat.unlink()
    assert stopwatch._cpu_s() is None
