"""One arm carried out once: on the host by this module as a program, orders as JSON on standard input, facts on output.

So every trial begins with a fresh process, and an engine that dies costs only its trial. Making the database and
closing it are outside the measured time, unless a document's own workload says otherwise.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from rig.contract.messages import decode
from rig.engines import Engine, ServingDriver, Session, Sharing, load
from rig.speed.trials.connections import Draws, Flag, Read, Written, in_threads, read, together, write
from rig.speed.trials.loads import Carried, Load
from rig.speed.trials.replication import ArmTask, Replication
from rig.speed.trials.space import Watcher
from rig.speed.trials.stopwatch import Stopwatch
from rig.workloads.operations import Operation


@dataclass(frozen=True)
class TrialOrders:
    """What a trial has to do: a load under settings, or an arm of a document."""

    engine_module: str
    seed: int
    settings: Mapping[str, str]
    load: Load | None = None
    # The module of a document's workload; empty for a load.
    workload: str = ""
    arm: str = ""
    scale: float = 1.0
    # Whether the disk space is watched meanwhile, which takes processor time.
    watched: bool = False

    @property
    def replication(self) -> Replication | None:
        """Return the document's workload; None for a load under settings."""
        replication: Replication | None = importlib.import_module(self.workload).REPLICATION if self.workload else None
        return replication


def obstacle(orders: TrialOrders, directory: str) -> str:
    """Return why a trial cannot be carried out in a directory; empty if it can."""
    replication = orders.replication
    return replication.obstacle(orders.arm, directory) if replication else ""


def carry_out(orders: TrialOrders, directory: str, disks: Sequence[str]) -> dict[str, Any]:
    """Carry out one trial in a directory and return its facts; `disks` are the sysfs folders of the disks below it."""
    place = Path(directory)
    with Watcher(place) if orders.watched else nullcontext() as watcher:
        return _facts(orders, Stopwatch(place, [Path(disk) for disk in disks], watcher))


def _facts(orders: TrialOrders, watch: Stopwatch) -> dict[str, Any]:
    if orders.load:
        return _of_settings(load(orders.engine_module), orders, orders.load, watch)
    replication = orders.replication
    assert replication, "neither a load nor a workload"
    replication.carry_out(ArmTask(orders.arm, str(watch.directory), orders.seed, orders.scale), watch)
    facts = watch.facts
    counts = facts["counts"]
    metrics = {metric.name: counts.pop(metric.name) for metric in replication.metrics if metric.name in counts}
    counted = {name: int(counts.pop(name, 0)) for name in ("transactions", "rows", "user_bytes")}
    # A document's workload does not report how much of its data is there at the end.
    return {**facts, **counted, "live_bytes": None, "metrics": metrics}


def _of_settings(engine: Engine, orders: TrialOrders, load: Load, watch: Stopwatch) -> dict[str, Any]:
    carried = Carried(load, engine.spec)
    work = [carried.transactions(writer) for writer in range(load.writers)]
    begin_ns, written, done = _carry_out(engine, orders, carried, watch, work)
    for part in written:
        for taken_ns in part.latencies_ns:
            watch.lap(taken_ns)
    watch.count("refused", sum(part.refused for part in written) + sum(part.refused for part in done))
    operations = [operation for each in work for transaction in each for operation in transaction]
    count = load.transactions * load.writers
    wall_ns = max(part.ended_ns for part in written) - begin_ns
    metrics = {"transactions_per_s": count / wall_ns * 1e9}
    if done:
        metrics["reads_per_s"] = sum(part.count / (part.ended_ns - begin_ns) * 1e9 for part in done)
    return {
        **watch.facts,
        "wall_ns": wall_ns,
        "transactions": count,
        "rows": len(operations),
        "user_bytes": sum(operation.user_bytes for operation in operations),
        "live_bytes": carried.live_bytes(work),
        "metrics": metrics,
        "reads": _read_facts(done) if done else None,
    }


def _carry_out(
    engine: Engine, orders: TrialOrders, carried: Carried, watch: Stopwatch,
    work: Sequence[Sequence[Sequence[Operation]]],
) -> tuple[int, list[Written], list[Read]]:  # fmt: skip
    """Make the database and carry out the work; return when it began, and what each writer and reader measured."""
    load, opened = carried.load, partial(engine.driver().open_database, str(watch.directory), orders.settings)
    database = opened()
    database.create(carried.tables, carried.initial)
    watch.reads_back(database.settings())
    draws = [Draws(load.think_ms, f"{load.seed} {number}") for number in range(load.writers + load.readers)]
    writers = [partial(write, work=part, draws=each) for part, each in zip(work, draws, strict=False)]
    is_over, (table, *_), rows = Flag(), carried.tables, {operation.key: operation.row for operation in carried.initial}
    readers = [
        partial(read, table=table.name, rows=rows, draws=each, is_over=is_over) for each in draws[load.writers :]
    ]
    if load.is_shared and engine.spec.sharing is Sharing.PROCESSES:
        database.close()
        return together(cast("Callable[[], Session]", opened), writers, readers, is_over, watch)
    if not load.is_shared:
        with watch.running():
            begin_ns = time.perf_counter_ns()
            results = begin_ns, [writers[0](cast("Session", database))], list[Read]()
    elif engine.spec.sharing is Sharing.THREADS:
        results = in_threads(cast("Session", database), writers, readers, is_over, watch)
    else:
        results = together(partial(_connect, engine, str(watch.directory)), writers, readers, is_over, watch)
    database.close()
    return results


def _connect(engine: Engine, directory: str) -> Session:
    driver = engine.driver()
    assert isinstance(driver, ServingDriver), f"{engine.name} is a server, and its driver cannot connect to it again"
    return driver.connected(directory)


def _read_facts(done: Sequence[Read]) -> dict[str, Any]:
    """Return the reads of all readers of a trial as facts."""
    return {
        "count": sum(part.count for part in done),
        "sample_ns": [taken_ns for part in done for taken_ns in part.sample_ns],
        "longest_ns": max(part.longest_ns for part in done),
    }


def main() -> None:
    """Carry out the orders, and print the facts, or one line that says why they are missing."""
    try:
        message = json.loads(sys.stdin.buffer.read())
        answer = carry_out(decode(TrialOrders, message["orders"]), message["directory"], message["disks"])
    except ModuleNotFoundError as error:
        answer = {"error": f"it needs the Python package {error.name}, which is not installed beside the rig"}
    except Exception as error:
        logging.getLogger(__name__).exception("the trial failed")
        answer = {"error": f"{type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
