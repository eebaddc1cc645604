"""A sync that is held begins only when its holder says so, and nothing else waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rig.guest.watch import seccomp
from rig.guest.watch.forks import Fork, Send
from rig.guest.watch.heldsyncs import hold_syncs

_HELD_S = 0.2


def messages_of(body: Callable[[Send], None]) -> tuple[Any, ...]:
    """Run a function in a fork, because a filter is for good; return its messages."""
    ending = Fork(body).wait()
    ending.require("the fork")
    return ending.messages


def _sync_all(path: Path, send: Send) -> None:
    events = list[str]()

    def hold() -> None:
        time.sleep(_HELD_S)
        events.append("held")

    assert hold_syncs(hold)
    with path.open("wb") as file:
        for sync in (os.fsync, os.fdatasync):
            file.write(b"x")
            file.flush()
            events.append("written")
            sync(file.fileno())
            events.append("synced")
    send(events)


def test_each_sync_of_the_thread_waits_for_its_holder(tmp_path: Path) -> None:
    (events,) = messages_of(partial(_sync_all, tmp_path / "file"))
    assert ["written", "held", "synced"] * 2 == events


def _sync_elsewhere(path: Path, send: Send) -> None:
    held = list[int]()
    assert hold_syncs(lambda: held.append(1))

    def sync() -> None:
        with path.open("wb") as file:
            os.fsync(file.fileno())

    thread = threading.Thread(target=sync)
    thread.start()
    thread.join()
    send(len(held))


def test_a_thread_that_it_starts_is_held_too(tmp_path: Path) -> None:
    assert (1,) == messages_of(partial(_sync_elsewhere, tmp_path / "file"))


def _under_a_supervisor(path: Path, send: Send) -> None:
    # System call 39, getpid, which nothing here makes.
    listener = seccomp.install([39])
    held = list[int]()
    is_held = hold_syncs(lambda: held.append(1))
    with path.open("wb") as file:
        os.fsync(file.fileno())
    os.close(listener)
    send([is_held, held])


def test_nothing_is_held_in_a_process_that_is_supervised_already(tmp_path: Path) -> None:
    assert ([False, []],) == messages_of(partial(_under_a_supervisor, tmp_path / "file"))
