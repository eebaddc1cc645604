"""Settings against faults: the whole run at a glance, one mark for each scenario, for the terminal and the report.

Each line is a fault, grouped by its class in the order of `rig.contract.faultspecs.FaultClass`. Each column is a value
of the engine's first setting and holds one mark for each value of the others. Scenarios under a shim are left out,
because they test the rig and not the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rig.analysis.judging.outcome import Result, Row
from rig.contract.faultspecs import SPECS, FaultClass
from rig.contract.orders import Shim
from rig.contract.scenario import Scenario, is_default

if TYPE_CHECKING:
    from rich.table import Table

# With this many faults or more, a line for each scenario is too much to read.
FAULTS_MIN = 4
LEGEND = "+ kept   X broken   ? inconclusive   . not judged"
_MARKS = {Result.KEPT: "+", Result.BROKEN: "X", Result.INCONCLUSIVE: "?", Result.NOT_JUDGED: "."}
_STYLES = {"+": "green", "X": "bold red", "?": "yellow", ".": "dim"}
_ARMS = list(FaultClass)


@dataclass(frozen=True)
class GridLine:
    """One fault: for each column the rows of its scenarios, None for a scenario that was not run."""

    fault: str
    fault_class: FaultClass
    columns: tuple[tuple[Row | None, ...], ...]


@dataclass(frozen=True)
class Grid:
    """The scenarios of one engine on one file system and device."""

    title: str
    # First the values of the first setting, then the values of the other settings, in the order of the run's rows.
    columns: tuple[str, ...]
    levels: tuple[str, ...]
    lines: tuple[GridLine, ...]


@dataclass(frozen=True)
class SettingLine:
    """One setting of an engine: for each column the row of its scenario, None for one that was not run."""

    engine: str
    name: str
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class Crossing:
    """Settings against one other thing: the scenarios of one file system, or of one fault."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[SettingLine, ...]


def crossing(
    title: str, rows: Sequence[Row], column_of: Callable[[Scenario], str], order: Callable[[str], Any]
) -> Crossing:
    """Return a line for each setting in the order of the engines, with the columns sorted by `order`."""
    row_of = {
        (row.outcome.scenario.engine, row.outcome.settings_name, column_of(row.outcome.scenario)): row for row in rows
    }
    columns = tuple(sorted({column for *_, column in row_of}, key=order))
    settings = sorted(dict.fromkeys(key[:2] for key in row_of), key=lambda setting: setting[0])
    lines = [SettingLine(*setting, tuple(row_of.get((*setting, column)) for column in columns)) for setting in settings]
    return Crossing(title, columns, tuple(lines))


def grids(rows: Sequence[Row]) -> list[Grid]:
    """Return a grid for each engine, file system, device, tuning and workload, in the order of the rows."""
    groups = by_title(rows, lambda scenario: f"{scenario.engine} on {scenario.filesystem}")
    return [_grid(title, group) for title, group in groups.items()]


def by_title(rows: Sequence[Row], words: Callable[[Scenario], str]) -> dict[str, list[Row]]:
    """Return the rows without a shim by `words`, device, tuning and workload, in their order."""
    rows_by_title: dict[str, list[Row]] = {}
    for row in rows:
        scenario = row.outcome.scenario
        if scenario.shim == Shim.NONE:
            workload = "" if is_default(scenario.workload_name) else f", workload {scenario.workload_name}"
            tuned = f", with {scenario.tuned}" if scenario.tuned else ""
            rows_by_title.setdefault(f"{words(scenario)}, device {scenario.device.name}{tuned}{workload}", []).append(
                row
            )
    return rows_by_title


def mark(row: Row | None) -> str:
    """Return the mark of a scenario, or a blank for None."""
    return " " if row is None else _MARKS[row.judgement.result]


def fault_order(fault: str) -> tuple[int, str]:
    """Return the key that sorts faults by their arm."""
    return _ARMS.index(_arm(fault)), fault


def table(grid: Grid) -> Table:
    """Return a grid for a terminal of 80 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    view.add_column("fault", no_wrap=True)
    for column in grid.columns:
        view.add_column(column, no_wrap=True)
    for index, line in enumerate(grid.lines):
        if index and line.fault_class is not grid.lines[index - 1].fault_class:
            view.add_section()
        marks = [[mark(row) for row in column] for column in line.columns]
        scenarios = [Text(" ").join(Text(mark, style=_STYLES.get(mark, "")) for mark in column) for column in marks]
        view.add_row(Text(line.fault), *scenarios)
    return view


def caption(grid: Grid) -> str:
    """Return the line that explains how to read the table."""
    return f"in each column: {', '.join(grid.levels)}; {LEGEND}"


def _grid(title: str, rows: Sequence[Row]) -> Grid:
    by_place = {(row.outcome.scenario.fault, *_place(row)): row for row in rows}
    columns = tuple(dict.fromkeys(_place(row)[0] for row in rows))
    levels = tuple(dict.fromkeys(_place(row)[1] for row in rows))
    faults = sorted({row.outcome.scenario.fault for row in rows}, key=fault_order)
    lines = tuple(
        GridLine(
            fault,
            _arm(fault),
            tuple(tuple(by_place.get((fault, column, level)) for level in levels) for column in columns),
        )
        for fault in faults
    )
    return Grid(title, columns, levels, lines)


def _place(row: Row) -> tuple[str, str]:
    first, *others = row.outcome.scenario.settings.values()
    return first, "_".join(others)


def _arm(fault: str) -> FaultClass:
    # A run of an older rig may hold a fault that no longer exists.
    return SPECS[fault].fault_class if fault in SPECS else FaultClass.HONEST
