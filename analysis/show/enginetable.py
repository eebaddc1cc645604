"""Engines side by side: a line for each setting, a column for each fault, on one file system, device and workload.

Only a report with more than one engine shows it. The grid (`rig.analysis.show.grid`) shows the settings of a single
engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.judging.outcome import Row
from rig.analysis.show import grid

_ENGINES_MIN = 2


def tables(rows: Sequence[Row]) -> list[grid.Crossing]:
    """Return a table for each file system, device, tuning and workload that has more than one engine, by faults."""
    groups = grid.by_title(rows, lambda scenario: scenario.filesystem)
    crossings = [
        grid.crossing(title, group, lambda scenario: scenario.fault, grid.fault_order)
        for title, group in groups.items()
    ]
    return [crossing for crossing in crossings if len({line.engine for line in crossing.lines}) >= _ENGINES_MIN]


def promise(row: Row) -> str:
    """Return what is promised, in a few words."""
    return row.promise.keeps.value if row.promise else "promise not known"


def loss_text(row: Row) -> str:
    """Return text such as `lost 0, 64 contents`: the worst result, and the distinct file contents behind it."""
    outcome = row.outcome
    contents = f"{outcome.exposure_count} content{'' if outcome.exposure_count == 1 else 's'}"
    if outcome.damage.count:
        return f"{outcome.damage.count} of {contents} damaged"
    if outcome.lost_max is None:
        return "nothing judged"
    return f"lost {outcome.lost_max} at most, {contents}" if outcome.lost_max else f"lost 0, {contents}"
