"""A fork tells how it ended: well, by an exception, or in the hands of an engine that died, is stuck or eats memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.contract.findings import FindingKind
from rig.guest.watch.forks import EngineFailed, Fork, Send
from rig.guest.watch.patience import Limits, children, descendants

_LIMITS = Limits(processor_s=0.5, wall_s=2)


def spins(_: Send) -> None:
    sys.stdout.write("round and\nround")
    while True:
        pass


def sleeps(_: Send) -> None:
    time.sleep(100)


def _own_mib() -> int:
    """Return what this process takes, from which a fork starts."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def eats(_: Send) -> None:
    taken = []
    while True:
        taken.append(bytes(1 << 22).replace(b"\0", b"\1"))
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("body", "failure", "words"),
    [
        (spins, FindingKind.STUCK, "got stuck: it computed for "),
        (sleeps, FindingKind.STUCK, "got stuck: it computed for 0 s of 2 s"),
        (eats, FindingKind.OUT_OF_MEMORY, "took too much memory: it took "),
        (lambda _: os.kill(os.getpid(), signal.SIGUSR1), FindingKind.DIED, "died by SIGUSR1"),
        (lambda _: os._exit(3), FindingKind.DIED, "ended with exit code 3"),
    ],
    ids=["spins", "sleeps", "eats", "dies", "exits"],
)
def test_a_fork_that_fails_is_told_by_kind_and_in_one_line(
    body: Callable[[Send], None], failure: FindingKind, words: str
) -> None:
    more_mib = _own_mib() + 200
    limits = Limits(100, _LIMITS.wall_s) if body is sleeps else Limits(100, 100, more_mib) if body is eats else _LIMITS
    begin_s = time.monotonic()
    ending = Fork(body, limits).wait()
    assert time.monotonic() - begin_s < 60
    assert failure is ending.failure
    assert ending.why.startswith(words)
    with pytest.raises(EngineFailed) as caught:
        ending.require("the workload")
    assert f"the workload failed, and nothing was wrong with the disk: the engine {ending.why}" == str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_last_words_of_a_fork_that_was_killed_are_kept() -> None:
    assert "; it said: round and round" in Fork(spins, _LIMITS).wait().why


def test_what_a_fork_sends_arrives_also_if_it_dies_and_an_exception_is_no_failure() -> None:
    def body(send: Send) -> None:
        send({"number": 1})
        os.kill(os.getpid(), signal.SIGKILL)

    ending = Fork(body).wait()
    assert (({"number": 1},), FindingKind.DIED) == (ending.messages, ending.failure)

    def fails(send: Send) -> None:
        send(2)
        raise ValueError("our own mistake")

    ending = Fork(fails).wait()
    assert ((2,), None) == (ending.messages, ending.failure)
    with pytest.raises(RuntimeError, match=r"(?s)the workload failed: Traceback.*our own mistake"):
        ending.require("the workload")
    Fork(lambda send: send(3)).wait().require("nothing")


def test_a_forks_fork_prints_where_it_should_and_no_file_takes_the_place_of_a_standard_stream() -> None:
    def inner(send: Send) -> None:
        with open("/dev/null") as file:
            send(file.fileno())
        os.write(2, b"the engine's own words")
        os._exit(3)

    ending = Fork(lambda send: send([*(told := Fork(inner).wait()).messages, told.why])).wait()
    ((descriptor, why),) = ending.messages
    assert descriptor > 2
    assert "ended with exit code 3; it said: the engine's own words" == why


def test_the_failure_of_a_forks_fork_is_told_as_such() -> None:
    ending = Fork(lambda _: Fork(lambda _: os._exit(3)).wait().require("the other process")).wait()
    assert FindingKind.DIED is ending.failure
    with pytest.raises(EngineFailed) as caught:
        ending.require("the workload")
    assert "the other process failed, and nothing was wrong with the disk: the engine ended with exit code 3" == str(
        caught.value
    )


def test_a_fork_does_not_outlive_the_fork_that_made_it() -> None:
    def body(send: Send) -> None:
        inner = Fork(sleeps)
        send(inner.pid)
        os.kill(os.getpid(), signal.SIGKILL)

    (inner,) = Fork(body).wait().messages
    end_s = time.monotonic() + 20
    while _runs(inner):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_descendants_are_listed_from_the_top_so_that_none_goes_on_when_another_is_killed() -> None:
    # The shell waits for another shell, which waits for a program that waits for its input.
    tree = subprocess.Popen(["sh", "-c", "sh -c 'cat; true'; true"], stdin=subprocess.PIPE)
    try:
        end_s = time.monotonic() + 60
        while len(below := descendants(tree.pid)) < 2:
            assert time.monotonic() < end_s
        assert below == [*children(tree.pid), *children(below[0])]
    finally:
        tree.communicate()
    assert [] == descendants(tree.pid)
