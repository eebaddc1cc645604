"""What recording and crash states cost on each file system: `python -m tests.durability.filesystem_costs ext4 xfs`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from rig.front import bench
from rig.machines import record
from rig.machines.guests import guests
from rig.planning import matrix

_STATES_MAX = 220


def main(words: Sequence[str], say: Callable[[str], object]) -> None:
    """Say one row of Markdown for each file system, WAL/FULL under power cuts."""
    say("| file system | recording | log, MiB | states/s: one machine, two | median ms of a state |")
    say("|---|---|---|---|---|")
    with guests() as source, tempfile.TemporaryDirectory() as scratch:
        for word in words:
            chosen = matrix.select([f"sqlite-{word}-wal_full_powercut"])
            (scenario,) = matrix.configured(chosen, matrix.profile("quick"))
            machines = source.of(scenario)
            begin_s = time.perf_counter()
            recorded = record.record(scenario, machines.recorder, Path(scratch, word))
            record_s = time.perf_counter() - begin_s
            alone, findings = bench.check(scenario, machines.checker, recorded, _STATES_MAX, 1)
            both, _ = bench.check(scenario, machines.checker, recorded, _STATES_MAX, 2)
            steps = {name: statistics.median(finding.ms[name] for finding in findings) for name in findings[0].ms}
            laps = ", ".join(f"{name} {ms:.1f}" for name, ms in steps.items() if ms >= 1)
            size_mib = recorded.facts.logs[0].size_bytes >> 20
            say(f"| `{word}` | {record_s:.1f} s | {size_mib} | {alone:.1f}, {both:.1f} | {laps} |")


if __name__ == "__main__":
    main(sys.argv[1:], click.echo)
