"""The busy time of a machine: the busy time of all processors, without the threads that only wait for the clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.speed.trials import busy
from rig.speed.trials.busy import Busy

NS = st.integers(0, 10**15)


def schedstat(*run_ns: int) -> str:
    of_processors = [f"cpu{number} 0 0 1 2 3 4 {one} 600 7\ndomain0 3 1 1\n" for number, one in enumerate(run_ns)]
    return "version 16\ntimestamp 42\n" + "".join(of_processors)


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc with a kernel thread that polls, one that works, and one that has ended."""
    monkeypatch.setattr(busy, "_PROCESSES", tmp_path)
    (tmp_path / "2/task/2").mkdir(parents=True)
    (tmp_path / "2/task/2/children").write_text("7 8 9 ")
    for pid, name in (("7", "dm-delay-flush-worker"), ("8", "jbd2/dm-0-8")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "comm").write_text(name + "\n")
        (tmp_path / pid / "schedstat").write_text("30 4 5\n")
    (tmp_path / "schedstat").write_text(schedstat(1000, 500))
    return tmp_path


def test_all_processors_are_counted_without_the_thread_that_polls_while_a_delay_passes(processes: Path) -> None:
    assert [processes / "7"] == busy.pollers()
    with Busy() as found:
        found.begin()
        (processes / "schedstat").write_text(schedstat(1700, 540))
        (processes / "7" / "schedstat").write_text("230 9 9\n")
        (processes / "8" / "schedstat").write_text("130 9 9\n")
        assert 700 + 40 - 200 == found.ns()


@pytest.mark.parametrize("gone", ["schedstat", "7/schedstat"])
def test_the_busy_time_is_unknown_where_the_kernel_does_not_say(processes: Path, gone: str) -> None:
    (processes / gone).unlink()
    with Busy() as found:
        found.begin()
        assert found.ns() is None


def test_without_kernel_threads_in_sight_none_polls(processes: Path) -> None:
    (processes / "2/task/2/children").unlink()
    assert [] == busy.pollers()


@given(st.lists(NS, min_size=1, max_size=9), st.lists(NS, max_size=3))
def test_the_figures_of_processors_and_pollers_are_found_among_the_others(run_ns: list[int], polled: list[int]) -> None:
    texts = [f"{one} 4 5\n".encode() for one in polled]
    assert sum(run_ns) - sum(polled) == busy._of_programs(schedstat(*run_ns).encode(), *texts)


def test_this_machine_is_busy_while_this_process_is() -> None:
    with Busy() as found:
        found.begin()
        end_s = time.process_time() + 0.05
        while time.process_time() < end_s:
            pass
        assert (found.ns() is None) != Path("/proc/schedstat").exists()
        assert (found.ns() or 1 << 60) >= 0.05e9
