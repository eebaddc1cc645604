"""One arm carried out once: on the host by this module as a program, orders as JSON on standard input, facts on output.

So every trial begins with a fresh process, and an engine that dies costs only the trial. Making the database and
closing it are outside the measured time, unless a document's own workload says otherwise. Several writers are
processes, which begin together.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rig.contract.errors import EngineError
from rig.engines import Database, EnduringDatabase, Engine, load
from rig.engines.replications import Replication, Task, replications_of
from rig.trials.loads import Carried, Load
from rig.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation

# How often a transaction is tried that is refused because another writer is at work.
_ATTEMPTS_MAX = 1000


@dataclass(frozen=True)
class Orders:
    """What a trial has to do: a load under settings, or an arm of a document."""

    engine_module: str
    seed: int
    settings: Mapping[str, str]
    load: Load | None = None
    document: str = ""
    arm: str = ""
    scale: float = 1.0

    @property
    def message(self) -> dict[str, Any]:
        """Return the orders in JSON's types."""
        return asdict(self)

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Orders:
        """Return the orders in a message."""
        return cls(**{**message, "load": Load(**message["load"]) if message["load"] else None})

    @property
    def replication(self) -> Replication | None:
        """Return the document's workload; None for a load under settings."""
        return next((one for one in replications_of(load(self.engine_module)) if one.name == self.document), None)


def hindrance(orders: Orders, directory: str) -> str:
    """Return why a trial cannot be carried out in a directory; empty if it can."""
    replication = orders.replication
    return replication.hindrance(orders.arm, directory) if replication else ""


def carry_out(orders: Orders, directory: str, disks: Sequence[str]) -> dict[str, Any]:
    """Carry out one trial in a directory and return its facts; `disks` are the sysfs folders of the disks below it."""
    watch = Stopwatch(Path(directory), [Path(disk) for disk in disks])
    if orders.load:
        return _of_settings(load(orders.engine_module), orders, orders.load, directory, watch)
    replication = orders.replication
    assert replication, f"no document {orders.document}"
    replication.carry_out(Task(orders.arm, directory, orders.seed, orders.scale), watch)
    facts = watch.facts
    counts = facts["counts"]
    metrics = {metric.name: counts.pop(metric.name) for metric in replication.metrics if metric.name in counts}
    told = {name: int(counts.pop(name, 0)) for name in ("transactions", "rows", "user_bytes")}
    return {**facts, **told, "metrics": metrics}


def _of_settings(engine: Engine, orders: Orders, load: Load, directory: str, watch: Stopwatch) -> dict[str, Any]:
    carried = Carried(load, engine.spec)
    opened = partial(engine.driver().open_database, directory, orders.settings)
    database = opened()
    database.create(carried.tables, carried.initial)
    watch.reads_back(database.settings())
    work = [carried.transactions(writer) for writer in range(load.writers)]
    if load.writers == 1:
        with watch.running():
            begin_ns = time.perf_counter_ns()
            parts = [_written(database, work[0])]
        database.close()
    else:
        database.close()
        begin_ns, parts = _together(opened, work, watch)
    for part in parts:
        for taken_ns in part.latencies_ns:
            watch.lap(taken_ns)
        watch.count("refused", part.refused)
    operations = [one for each in work for transaction in each for one in transaction]
    count = load.transactions * load.writers
    wall_ns = max(part.ended_ns for part in parts) - begin_ns
    return {
        **watch.facts,
        "wall_ns": wall_ns,
        "transactions": count,
        "rows": len(operations),
        "user_bytes": sum(one.user_bytes for one in operations),
        "metrics": {"transactions_per_s": count / wall_ns * 1e9},
    }


@dataclass(frozen=True)
class _Part:
    """What one writer measured."""

    latencies_ns: list[int]
    # How often a transaction was refused and tried again.
    refused: int
    # By the clock that all processes share.
    ended_ns: int


def _written(database: Database, work: Sequence[Sequence[Operation]]) -> _Part:
    """Carry out transactions one after the other."""
    taken_ns, refused = [], 0
    for operations in work:
        begin_ns = time.perf_counter_ns()
        refused += _committed(database, operations)
        taken_ns.append(time.perf_counter_ns() - begin_ns)
    return _Part(taken_ns, refused, time.perf_counter_ns())


def _committed(database: Database, operations: Sequence[Operation]) -> int:
    """Commit, and try again if that is refused; return how often it was. Raise the error of the last attempt."""
    for attempt in range(_ATTEMPTS_MAX):
        try:
            database.commit(operations)
        except Exception:
            # Without a rollback there is no second attempt.
            if attempt + 1 == _ATTEMPTS_MAX or not isinstance(database, EnduringDatabase):
                raise
            database.rollback()
        else:
            return attempt
    raise AssertionError("unreachable")


def _together(
    opened: Callable[[], Database], work: Sequence[Sequence[Sequence[Operation]]], watch: Stopwatch
) -> tuple[int, list[_Part]]:
    """Let one process write each part of the work; return when all began, and what each measured."""
    context = multiprocessing.get_context("fork")
    ours, writers = [], []
    for part in work:
        # One at a time: a writer that inherits another's end keeps it open when that one dies, and nobody is told.
        mine, theirs = context.Pipe()
        writer = context.Process(target=_writer, args=(theirs, opened, part), daemon=True)
        writer.start()
        theirs.close()
        ours.append(mine)
        writers.append(writer)
    for each in ours:
        _told(each)
    with watch.running():
        begin_ns = time.perf_counter_ns()
        for each in ours:
            each.send(None)
        parts = [_told(each) for each in ours]
        for writer in writers:
            # The kernel counts what a child wrote only once it has been waited for.
            writer.join()
    return begin_ns, parts


def _writer(pipe: Connection, opened: Callable[[], Database], work: Sequence[Sequence[Operation]]) -> None:
    """Say when the database is open, begin when told to, and end without closing: closing is not measured."""
    try:
        database = opened()
        pipe.send(None)
        pipe.recv()
        pipe.send(_written(database, work))
    except Exception as error:  # noqa: BLE001 - told to the trial, which raises it
        pipe.send(error)
    os._exit(0)


def _told(pipe: Connection) -> Any:
    """Return what a writer says; raise what it raised."""
    try:
        answer = pipe.recv()
    except EOFError:
        raise EngineError("a writer ended without a word: the engine was killed or has crashed") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def main() -> None:
    """Carry out the orders, and print the facts, or one line that says why there are none."""
    try:
        message = json.loads(sys.stdin.buffer.read())
        told = carry_out(Orders.of(message["orders"]), message["directory"], message["disks"])
    except ModuleNotFoundError as error:
        told = {"error": f"it needs the Python package {error.name}, which is not installed beside the rig"}
    except Exception as error:
        logging.getLogger(__name__).exception("the trial failed")
        told = {"error": f"{type(error).__name__}: {error}"}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
