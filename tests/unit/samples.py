"""Synthetic scenarios for tests of arithmetic and rendering, in the form that the rig stores."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rig.contract.devices import DEVICES
from rig.contract.results import (
    LiveFinding,
    LogFacts,
    MeasuredScenario,
    PlanFacts,
    RecordingFacts,
    Verdict,
    VerdictKind,
)
from rig.contract.scenario import Scenario, WorkloadSpec

SECOND_NS = 1_000_000_000


def verdict(
    kind: VerdictKind = VerdictKind.DURABLE,
    lost: int = 0,
    state: str = "e1",
    *,
    content: str | None = None,
    acked: int = 20,
    instant_weight_ns: int = 0,
    detail: str = "",
    entry: int = 0,
    clock: str = "",
    holds: str = "",
) -> Verdict:
    """Return one judged crash state; its content is unique unless given."""
    has_prefix = kind in (VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX)
    return Verdict(
        scenario="",
        state=state,
        content=f"content of {state}" if content is None else content,
        entry=entry,
        clock=clock,
        holds=holds,
        kind=kind,
        acked=acked,
        recovered=acked - lost if has_prefix else None,
        lost=lost,
        lost_virtual_ns=lost * SECOND_NS // 2,
        instant_weight_ns=instant_weight_ns,
        detail=detail,
        files=f"files of {state}" if content is None else content,
    )


def durable(count: int) -> list[Verdict]:
    """Return this many durable states, all of different content."""
    return [verdict(state=f"durable-{index}") for index in range(count)]


def sqlite(journal_mode: str, synchronous: str) -> dict[str, str]:
    """Return SQLite's settings in its own words."""
    return {"journal_mode": journal_mode, "synchronous": synchronous}


def measured_scenario(
    settings: Mapping[str, str],
    verdicts: Iterable[Verdict],
    fault: str = "powercut",
    shim: str = "none",
    *,
    read_back: Mapping[str, str] | None = None,
    state_count: int | None = None,
    epochs_sampled: int = 10,
    reproduced: bool | None = True,
    busy_virtual_ns: int = SECOND_NS,
    flush_count: int = 40,
    live: tuple[LiveFinding, ...] = (),
) -> MeasuredScenario:
    """Return a scenario of SQLite on ext4 with these verdicts; its facts are plausible and fixed."""
    rows = tuple(verdicts)
    name = "_".join(settings.values())
    digest = hashlib.blake2b(f"{name}{shim}".encode(), digest_size=32).hexdigest()
    recording = RecordingFacts(
        key=digest[:16],
        disk_mib=64,
        logs=[LogFacts(digest, 2_103_296, 912)],
        template="7d1f" * 16,
        image="a90c" * 16,
        qemu_version="7.2.17",
        kernel="6.12.43+deb13-cloud-amd64",
        engine_version="3.46.1",
        settings=dict(settings if read_back is None else read_back),
        seed=1,
        transaction_count=40,
        busy_virtual_ns=busy_virtual_ns,
        span_virtual_ns=17 * SECOND_NS,
        flush_count=flush_count,
        written_bytes=1_638_400,
        user_bytes=51_200,
        syncs={},
        live=live,
        reproduced=reproduced,
        latencies_virtual_ns=[busy_virtual_ns // 44 * (2 if number % 10 == 9 else 1) for number in range(40)],
        fua_count=flush_count // 2,
    )
    plan = PlanFacts(
        state_count=len(rows) if state_count is None else state_count,
        epoch_count=12,
        epochs_exhaustive=12 - epochs_sampled,
        epochs_sampled=epochs_sampled,
        instant_count=sum(row.instant_weight_ns > 0 for row in rows),
    )
    return MeasuredScenario(Scenario("sqlite", "ext4", dict(settings), fault, shim=shim), recording, plan, rows)


def changed(measured: MeasuredScenario, **fields: Any) -> MeasuredScenario:
    """Return the same results for a scenario with other fields; a device and a workload are given by name."""
    if "device" in fields:
        fields["device"] = DEVICES[fields["device"]]
    if "workload" in fields:
        fields["workload"] = WorkloadSpec(name=fields["workload"])
    return replace(measured, scenario=replace(measured.scenario, **fields))


def controls_that_fire(fault: str = "powercut") -> list[MeasuredScenario]:
    """Return the control scenarios of a group; each loses, and one shows damage."""
    losing = [verdict(VerdictKind.LOST_SUFFIX, 3, "lost"), verdict(VerdictKind.CORRUPT, 0, "corrupt")]
    return [
        measured_scenario(sqlite("delete", "off"), losing, fault),
        measured_scenario(sqlite("wal", "off"), losing[:1], fault),
    ]


# Settings -> FLUSH per transaction, most transactions lost, percentage of damaged states.
_MATRIX: Mapping[tuple[str, str], tuple[float, int, int]] = {
    ("delete", "off"): (0, 23, 31),
    ("delete", "normal"): (4, 1, 0),
    ("delete", "full"): (6, 1, 0),
    ("delete", "extra"): (8, 0, 0),
    ("truncate", "off"): (0, 22, 24),
    ("truncate", "normal"): (4, 1, 0),
    ("truncate", "full"): (6, 0, 0),
    ("truncate", "extra"): (6, 0, 0),
    ("persist", "off"): (0, 25, 28),
    ("persist", "normal"): (3, 0, 0),
    ("persist", "full"): (4, 0, 0),
    ("persist", "extra"): (4, 0, 0),
    ("wal", "off"): (0, 34, 8),
    ("wal", "normal"): (0.2, 12, 0),
    ("wal", "full"): (1, 0, 0),
    ("wal", "extra"): (1, 0, 0),
}


def matrix(fault: str = "powercut", seed: int = 1) -> list[MeasuredScenario]:
    """Return 16 scenarios, each of SQLite's journal modes at each level, and wal_full with its syncs swallowed."""
    scenarios = []
    for (journal_mode, synchronous), (flushes, lost_max, damage_percent) in _MATRIX.items():
        settings = sqlite(journal_mode, synchronous)
        rows = _rows(random.Random(f"{seed}{settings}{fault}"), 220, lost_max, damage_percent)
        busy_virtual_ns = int(40 * (0.0002 + 0.001 * flushes + 0.0001 * len(journal_mode)) * SECOND_NS)
        scenarios.append(
            measured_scenario(settings, rows, fault, busy_virtual_ns=busy_virtual_ns, flush_count=int(40 * flushes))
        )
    sabotaged = _rows(random.Random(seed), 120, 31, 0)
    scenarios.append(
        measured_scenario(
            sqlite("wal", "full"), sabotaged, fault, "eatmydata", busy_virtual_ns=25 * SECOND_NS // 1000, flush_count=0
        )
    )
    return scenarios


def _rows(random_source: random.Random, state_count: int, lost_max: int, damage_percent: int) -> list[Verdict]:
    rows = []
    for index in range(state_count):
        acked = 1 + index * 40 // state_count
        state = f"e{index // 8:02d}:i{index % 8}"
        weight_ns = SECOND_NS // 5 if index % 3 == 0 else 0
        if random_source.randrange(100) < damage_percent:
            kind = random_source.choice((VerdictKind.TORN, VerdictKind.CORRUPT, VerdictKind.HOLE))
            detail = f"table item, key {index}: expected balance {index * 7}, found {index * 7 - 3}"
            rows.append(verdict(kind, 0, state, acked=acked, instant_weight_ns=weight_ns, detail=detail))
            continue
        lost = min(acked, random_source.choice((0, 0, random_source.randint(0, lost_max))))
        kind = VerdictKind.LOST_SUFFIX if lost else VerdictKind.DURABLE
        detail = f"transaction {acked - lost + 1} of {acked} acknowledged is gone" if lost else ""
        rows.append(verdict(kind, lost, state, acked=acked, instant_weight_ns=weight_ns, detail=detail))
    return rows
