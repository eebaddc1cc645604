"""Marks from several threads: in the log, time never runs backwards."""

from __future__ import annotations

import threading

from rig.guest.programs.marks import marker


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
