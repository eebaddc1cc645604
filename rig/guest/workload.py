"""The program whose data is at stake: it runs transactions and marks each acknowledgement in the write log.

It is a process of its own, so that a shim can be put under it and that it can be killed. It reads its orders as JSON
from standard input and leaves a JSON object on standard output. Marks, each one token with the virtual time in
nanoseconds: `setup-T` once everything before the first transaction is durable, `begin-N-T`, `ack-N-T`,
`tick-T` while it thinks, `end-T`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from rig.engines import named
from rig.guest.clock import ProcessClock
from rig.guest.devicemapper import DeviceMapper
from rig.workloads import ledger

# Think time is random, so that background writeback gets its turn at different places of different transactions;
# the ticks tell the log when it did.
_TICK_MS = 250


def run(orders: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """Carry out the workload of a scenario in the mounted directory; return what the host has to know."""
    database = named(orders["engine"]).open_database(orders["directory"], orders["settings"])
    seed = orders["seed"]
    initial = ledger.initial(seed)
    database.create(ledger.TABLES, initial)
    read_back = database.settings()
    # The experiment begins from a durable database, whatever the settings: only acknowledged transactions are at stake.
    os.sync()
    mark("setup")
    user_bytes = 0
    pause = random.Random(f"think {seed}")
    clock = ProcessClock(orders, mark)
    for number in range(1, orders["transaction_count"] + 1):
        operations = ledger.transaction(seed, number)
        user_bytes += sum(operation.user_bytes for operation in operations)
        _think(pause.uniform(0, 2 * orders["think_ms"]), mark)
        clock.before(number)
        mark(f"begin-{number}")
        database.commit(operations)
        mark(f"ack-{number}")
    _think(orders["rest_ms"], mark)
    mark("end")
    database.close()
    return {"settings": read_back, "user_bytes": user_bytes, "live": [], "clock": clock.readings}


def _think(pause_ms: float, mark: Callable[[str], None]) -> None:
    until_ns = time.monotonic_ns() + int(pause_ms * 1e6)
    while (left_ns := until_ns - time.monotonic_ns()) > 0:
        time.sleep(min(left_ns / 1e9, _TICK_MS / 1e3))
        mark("tick")


def main() -> None:
    """Read orders, run, report."""
    orders = json.load(sys.stdin)
    mapper = DeviceMapper()

    def mark(text: str) -> None:
        mapper.message(orders["log_device"], f"mark {text}-{time.monotonic_ns()}")

    json.dump(run(orders, mark), sys.stdout)


if __name__ == "__main__":
    main()
