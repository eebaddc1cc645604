"""What a recording and its crash states cost, under emulation and in user-mode machines.

`python -m tests.durability.state_costs sqlite-ext4-wal_full_powercut sqlite-xfs-wal_full_powercut`
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from rig.campaign import record
from rig.contract.findings import Finding
from rig.front.verbs import bench
from rig.machines.guests import guests
from rig.planning import matrix

_STATES_MAX = 440


def main(ids: Sequence[str], say: Callable[[str], object]) -> None:
    """Say one row of Markdown for each scenario; states per second are those of two machines, their start included."""
    say("| scenario | recording | log, MiB | states | states/s: emulated, user mode | median ms in user mode |")
    say("|---|---|---|---|---|---|")
    with guests() as source, tempfile.TemporaryDirectory() as scratch:
        for scenario in matrix.configure(matrix.select(ids), matrix.profile("quick")):
            machines = source.of(scenario)
            begin_s = time.perf_counter()
            recorded = record.record(scenario, machines.recorder, Path(scratch, scenario.id))
            record_s = time.perf_counter() - begin_s
            emulated, _ = bench.check(scenario, machines.verifier, recorded, _STATES_MAX, 2)
            native, findings = bench.check(scenario, machines.checker, recorded, _STATES_MAX, 2)
            size_mib = recorded.facts.logs[0].size_bytes >> 20
            rates = f"{emulated:.1f}, {native:.1f}"
            say(f"| `{scenario.id}` | {record_s:.1f} s | {size_mib} | {len(findings)} | {rates} | {_laps(findings)} |")


def _laps(findings: Sequence[Finding]) -> str:
    steps = {name: statistics.median(finding.ms[name] for finding in findings) for name in findings[0].ms}
    return ", ".join(f"{name} {ms:.1f}" for name, ms in steps.items() if ms >= 0.2)


if __name__ == "__main__":
    main(sys.argv[1:], click.echo)
