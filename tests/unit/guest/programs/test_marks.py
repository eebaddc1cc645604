"""Marks from several threads and processes: in the log, time never runs backwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rig.guest.programs.marks import among_processes, marker
from rig.guest.watch.forks import Fork, Send


class _SlowFirst:
    """A device mapper whose first message waits, for a while, until another thread has sent its own."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self._is_first = True
        self.is_in_message = threading.Event()
        self._is_overtaken = threading.Event()

    def message(self, device: str, line: str) -> None:
        if self._is_first:
            self._is_first = False
            self.is_in_message.set()
            self._is_overtaken.wait(0.2)
        else:
            self._is_overtaken.set()
        self.sent.append((device, line))


def test_a_mark_that_waits_is_not_overtaken_by_that_of_another_thread() -> None:
    mapper = _SlowFirst()
    mark = marker(mapper, "log", "log-b")  # type: ignore[arg-type]
    slow = threading.Thread(target=mark, args=("ack-1",))
    slow.start()
    mapper.is_in_message.wait()
    mark("inject-1")
    slow.join()
    assert ["log", "log-b", "log", "log-b"] == [device for device, _ in mapper.sent]
    times = [int(line.rpartition("-")[2]) for _, line in mapper.sent]
    assert sorted(times) == times
    assert ["mark ack-1", "mark ack-1", "mark inject-1", "mark inject-1"] == [
        line.rpartition("-")[0] for _, line in mapper.sent
    ]


def test_a_mark_that_waits_is_not_overtaken_by_that_of_another_process(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def slow_mark(text: str) -> None:
        now = time.monotonic_ns()
        time.sleep(0.03 if text == "slow" else 0)
        with log.open("a") as file:
            file.write(f"{now} {text}\n")

    with among_processes(slow_mark) as mark:
        forks = [Fork(partial(_mark_often, mark, text)) for text in ("slow", "quick")]
        for fork in forks:
            fork.wait().require("a process that marks")
    lines = [line.split() for line in log.read_text().splitlines()]
    times = [int(now) for now, _ in lines]
    assert sorted(times) == times
    assert {"slow": 5, "quick": 5} == {text: sum(other == text for _, other in lines) for text in ("slow", "quick")}


def _mark_often(mark: Callable[[str], None], text: str, _send: Send) -> None:
    for _ in range(5):
        mark(text)
        time.sleep(0.001)
