"""The connections of a trial: writers that carry out transactions, and readers that look up rows meanwhile.

Several connections are processes or threads, as the engine allows, which begin together. A reader looks up one row at a
time, by a random key among the rows that were there from the start, and checks what it finds; it ends when the last
writer is done.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

from rig.contract.errors import EngineError
from rig.engines import RevocableSession, Session
from rig.speed.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation, Row

# How often to try a transaction or a read that is refused because another connection is at work.
_ATTEMPTS_MAX = 1000
# Per reader. A reader does millions of reads in a long trial, so it keeps a part of the latencies, evenly spread.
_SAMPLE_MAX = 2048
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Written:
    """What one writer measured."""

    latencies_ns: list[int]
    # How often a transaction was refused and tried again.
    refused: int
    # By the clock that all processes share.
    ended_ns: int


@dataclass(frozen=True)
class Read:
    """What one reader measured."""

    count: int
    sample_ns: list[int]
    longest_ns: int
    refused: int
    ended_ns: int


class Draws:
    """What one connection does at random: how long it pauses, and which rows it reads."""

    def __init__(self, think_ms: int, seed: str) -> None:
        self._think_s = think_ms / 1000
        self._random = random.Random(f"connection {seed}")

    def pause(self) -> None:
        """Wait for between nothing and twice the mean; do nothing if the mean is 0."""
        if self._think_s:
            time.sleep(self._random.uniform(0, 2 * self._think_s))

    def key(self, keys: Sequence[int]) -> int:
        """Return one of the keys."""
        return self._random.choice(keys)


class Flag:
    """Something that processes tell each other: not set at first, then set for ever."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Set the flag in every process that was forked with it."""
        self._memory[0] = 1

    @property
    def is_set(self) -> bool:
        """Whether a process has set it."""
        return bool(self._memory[0])


def write(session: Session, work: Sequence[Sequence[Operation]], draws: Draws) -> Written:
    """Carry out transactions one after the other."""
    taken_ns, refused = [], 0
    for operations in work:
        draws.pause()
        begin_ns = time.perf_counter_ns()
        _, refusals = _try(session, lambda operations=operations: session.commit(operations))  # type: ignore[misc]
        taken_ns.append(time.perf_counter_ns() - begin_ns)
        refused += refusals
    return Written(taken_ns, refused, time.perf_counter_ns())


def read(session: Session, table: str, rows: Mapping[int, Row], draws: Draws, is_over: Flag) -> Read:
    """Look up rows until the writers are done, at least one row; raise EngineError if a row is wrong."""
    keys = list(rows)
    count, refused, longest_ns, stride = 0, 0, 0, 1
    sample_ns: list[int] = []
    while not count or not is_over.is_set:
        draws.pause()
        key = draws.key(keys)
        begin_ns = time.perf_counter_ns()
        row, refusals = _try(session, lambda key=key: session.row(table, key))  # type: ignore[misc]
        taken_ns = time.perf_counter_ns() - begin_ns
        if row != rows[key]:
            raise EngineError(f"a reader found {row!r} under key {key}, where {rows[key]!r} was written")
        if count % stride == 0:
            sample_ns.append(taken_ns)
        if len(sample_ns) > _SAMPLE_MAX:
            sample_ns, stride = sample_ns[::2], stride * 2
        longest_ns = max(longest_ns, taken_ns)
        count, refused = count + 1, refused + refusals
    return Read(count, sample_ns, longest_ns, refused, time.perf_counter_ns())


def in_threads(
    session: Session,
    writers: Sequence[Callable[[Session], Written]],
    readers: Sequence[Callable[[Session], Read]],
    is_over: Flag,
    watch: Stopwatch,
) -> tuple[int, list[Written], list[Read]]:
    """Give each writer and reader a thread; all use one session. Return when all began, and what each measured."""
    may_begin = threading.Event()
    with ThreadPoolExecutor(len(writers) + len(readers)) as pool:
        writing = [pool.submit(_waiting, may_begin, partial(task, session)) for task in writers]
        reading = [pool.submit(_waiting, may_begin, partial(task, session)) for task in readers]
        with watch.running():
            begin_ns = time.perf_counter_ns()
            may_begin.set()
            try:
                written = [each.result() for each in writing]
            finally:
                is_over.set()
            done = [each.result() for each in reading]
    return begin_ns, written, done


def together(
    opened: Callable[[], Session],
    writers: Sequence[Callable[[Session], Written]],
    readers: Sequence[Callable[[Session], Read]],
    is_over: Flag,
    watch: Stopwatch,
) -> tuple[int, list[Written], list[Read]]:
    """Give each writer and reader a process and a connection; return when all began, and what each measured."""
    context = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        pipes, processes = [], []
        for task in (*writers, *readers):
            # One at a time: a process that inherits another's end would keep it open when the other dies, unnoticed.
            mine, theirs = context.Pipe()
            pipes.append(stack.enter_context(mine))
            process = context.Process(target=_carry_out, args=(theirs, opened, task), daemon=True)
            process.start()
            theirs.close()
            stack.callback(_end, process)
            processes.append(process)
        for each in pipes:
            _receive(each)
        with watch.running():
            begin_ns = time.perf_counter_ns()
            for each in pipes:
                each.send(None)
            try:
                written = [_receive(each) for each in pipes[: len(writers)]]
            finally:
                is_over.set()
            done = [_receive(each) for each in pipes[len(writers) :]]
            for process in processes:
                # The kernel counts what a child wrote only once it has been waited for.
                process.join()
    return begin_ns, written, done


def _end(process: ForkProcess) -> None:
    """Kill a process that was left at work by an error of another, and release it."""
    process.kill()
    process.join()
    process.close()


def _waiting(may_begin: threading.Event, task: Callable[[], _Answer]) -> _Answer:
    may_begin.wait()
    return task()


def _try(session: Session, action: Callable[[], _Answer]) -> tuple[_Answer, int]:
    """Do something, again if it is refused; return the answer and the refusals. Raise the last attempt's error."""
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return action(), attempt
        except Exception:
            # Without a rollback there is no second attempt.
            if attempt + 1 == _ATTEMPTS_MAX or not isinstance(session, RevocableSession):
                raise
            session.rollback()
    raise AssertionError("unreachable")


def _carry_out(pipe: Connection, opened: Callable[[], Session], task: Callable[[Session], object]) -> None:
    """Say when the database is open, begin when told to, and end without closing: closing is not measured."""
    try:
        session = opened()
        pipe.send(None)
        pipe.recv()
        pipe.send(task(session))
    except Exception as error:  # noqa: BLE001 - told to the trial, which raises it
        pipe.send(error)
    os._exit(0)


def _receive(pipe: Connection) -> Any:
    """Return what a process says; raise what it raised."""
    try:
        answer = pipe.recv()
    except EOFError:
        raise EngineError("a writer or reader ended without a word: the engine was killed or has crashed") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
