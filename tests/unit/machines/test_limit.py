"""A limit on a process does not count time in which the process waited for a CPU.

The processes are real: one that spins, one that sleeps, one that is stopped, and one that gets little CPU time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from rig.machines import limit as limits
from rig.machines.limit import Limit

_SPIN = "while True: pass"
_SLEEP = "import time; time.sleep(600)"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []

    def make(program: str, *prefix: str) -> subprocess.Popen[bytes]:
        # A separate session: if the kernel shares CPUs among sessions, each gets its share.
        running.append(subprocess.Popen([*prefix, sys.executable, "-c", program], start_new_session=True))
        return running[-1]

    yield make
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def waited_out(limit: Limit) -> tuple[float, str]:
    """Wait until a limit expires; return how long that took by the wall clock, and the limit's message."""
    begin_s = time.monotonic()
    while not limit.is_over:
        time.sleep(limit.look_again_s)
    return time.monotonic() - begin_s, str(limit)


def figures(said: str) -> tuple[float, float, float]:
    words = [word for word in said.split() if word.replace(".", "").isdigit()]
    return float(words[-3]), float(words[-2]), float(words[-1])


def test_one_that_spins_is_late_by_its_processor_time(start: Start) -> None:
    _, said = waited_out(Limit(start(_SPIN).pid, 1, "answer"))
    processor_s, _, wall_s = figures(said)
    assert said.startswith("no answer within 1 s: it ran for ")
    assert 0.9 <= processor_s <= wall_s


def test_its_children_count_those_that_run_and_those_that_have_ended(start: Start) -> None:
    # Each spins for half a second, one after the other, while their parent sleeps.
    spin = "import time; end = time.process_time() + 0.5\\nwhile time.process_time() < end: pass"
    parent = start(f"import subprocess, sys, time\nwhile True: subprocess.run([sys.executable, '-c', '{spin}'])")
    _, said = waited_out(Limit(parent.pid, 2, "answer"))
    processor_s, _, wall_s = figures(said)
    assert 1 <= processor_s <= wall_s + 0.1


def test_the_wait_of_a_child_for_a_processor_is_not_counted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_WALL_FACTOR", 100)
    here = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    for _ in range(3):
        start(_SPIN, *here)
    parent = start("import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])", *here)
    took_s, said = waited_out(Limit(parent.pid, 1, "answer"))
    _, waited_s, _ = figures(said)
    assert waited_s > 1
    assert took_s > 2


@pytest.mark.parametrize("stopped", [False, True], ids=["sleeps", "is stopped"])
def test_one_that_does_nothing_is_late_by_the_wall_clock(start: Start, stopped: bool) -> None:
    process = start(_SLEEP)
    if stopped:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    took_s, said = waited_out(Limit(process.pid, 1, "answer"))
    processor_s, _, _ = figures(said)
    assert said.startswith("no answer within 1 s: it ran for ")
    assert processor_s < 0.9
    assert 1 <= took_s < 10


def test_a_pause_of_the_host_is_not_the_machines(start: Start) -> None:
    limit = Limit(start(_SLEEP).pid, 3, "answer")
    assert not limit.is_over
    # We do not look either, as if both of us were frozen.
    time.sleep(5)
    assert not limit.is_over
    took_s, _ = waited_out(limit)
    assert took_s > 1


def test_one_that_waits_for_a_processor_is_not_late_until_it_had_its_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This host may already be busy.
    monkeypatch.setattr(limits, "_WALL_FACTOR", 100)
    here = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    for _ in range(3):
        start(_SPIN, *here)
    took_s, said = waited_out(Limit(start(_SPIN, *here).pid, 1, "answer"))
    processor_s, waited_s, wall_s = figures(said)
    assert said.startswith("no answer within 1 s: ")
    assert processor_s < 1.5
    assert waited_s > 1
    assert took_s > 2
    assert wall_s > 2


def test_the_wall_clock_ends_the_wait_for_one_that_gets_next_to_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_WALL_FACTOR", 2)
    here = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    for _ in range(4):
        start(_SPIN, *here)
    _, said = waited_out(Limit(start(_SPIN, *here).pid, 2, "answer"))
    processor_s, _, wall_s = figures(said.partition("; ")[0])
    assert said.startswith("no answer within 2 times 2 s: ")
    assert said.endswith("this host is too busy, run fewer programs or fewer machines at a time (--jobs)")
    assert processor_s < 2
    assert wall_s >= 4


def test_children_that_come_and_go_are_no_trouble(start: Start) -> None:
    parent = start("import os\nwhile True:\n    if not os.fork():\n        os._exit(0)\n    os.wait()")
    limit = Limit(parent.pid, 600, "answer")
    until_s = time.monotonic() + 3
    look_count = 0
    while time.monotonic() < until_s:
        assert not limit.is_over
        look_count += 1
    assert look_count > 100


def test_what_a_process_did_before_does_not_count(start: Start) -> None:
    process = start(_SPIN)
    waited_out(Limit(process.pid, 1, "first answer"))
    limit = Limit(process.pid, 1, "second answer")
    assert not limit.is_over


def test_one_that_is_gone_is_no_trouble(start: Start) -> None:
    process = start(_SPIN)
    limit = Limit(process.pid, 0.5, "answer")
    assert not limit.is_over
    process.kill()
    process.wait()
    took_s, _ = waited_out(limit)
    assert took_s >= 0.4
