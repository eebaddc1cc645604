"""Engines side by side: a line for each setting, a column for each fault, on one file system, device and workload.

Only a report with more than one engine shows it. The grid (`rig.analysis.show.grid`) shows the settings of a single
engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rig.analysis.judging.outcome import Row
from rig.analysis.show import grid

_ENGINES_MIN = 2


@dataclass(frozen=True)
class EngineLine:
    """One setting of an engine: for each fault the row of its scenario, None for one that was not run."""

    engine: str
    name: str
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class EngineTable:
    """The scenarios of all engines on one file system and device, with one workload."""

    title: str
    faults: tuple[str, ...]
    lines: tuple[EngineLine, ...]


def tables(rows: Sequence[Row]) -> list[EngineTable]:
    """Return a table for each file system, device, tuning and workload that has more than one engine."""
    groups = grid.by_title(rows, lambda scenario: scenario.filesystem)
    return [_table(title, group) for title, group in groups.items() if len(_engines(group)) >= _ENGINES_MIN]


def promise(row: Row) -> str:
    """Return what is promised, in a few words."""
    return row.promise.keeps.value if row.promise else "promise not known"


def seen(row: Row) -> str:
    """Return text such as `lost 0, 64 contents`: the worst result, and the distinct file contents behind it."""
    outcome = row.outcome
    contents = f"{outcome.exposure_count} content{'' if outcome.exposure_count == 1 else 's'}"
    if outcome.damage.count:
        return f"{outcome.damage.count} of {contents} damaged"
    if outcome.lost_max is None:
        return "nothing judged"
    return f"lost {outcome.lost_max} at most, {contents}" if outcome.lost_max else f"lost 0, {contents}"


def _engines(rows: Sequence[Row]) -> list[str]:
    return sorted({row.outcome.scenario.engine for row in rows})


def _table(title: str, rows: Sequence[Row]) -> EngineTable:
    found = {_key(row): row for row in rows}
    faults = tuple(sorted({row.outcome.scenario.fault for row in rows}, key=grid.fault_order))
    settings = dict.fromkeys((row.outcome.scenario.engine, row.outcome.settings_name) for row in rows)
    lines = tuple(
        EngineLine(engine, name, tuple(found.get((engine, name, fault)) for fault in faults))
        for engine, name in sorted(settings, key=lambda one: one[0])
    )
    return EngineTable(title, faults, lines)


def _key(row: Row) -> tuple[str, str, str]:
    scenario = row.outcome.scenario
    return scenario.engine, row.outcome.settings_name, scenario.fault
