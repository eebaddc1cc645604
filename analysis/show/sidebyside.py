"""File systems side by side: what each setting keeps on each of them under one fault, and on which evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rig.analysis.judging.outcome import Result, Row
from rig.analysis.show import grid
from rig.contract.results import VerdictKind

if TYPE_CHECKING:
    from rich.table import Table

_FILESYSTEMS_MIN = 2
CAPTION = (
    "in parentheses: the distinct file contents that a result rests on; new: damaged contents before the first "
    "acknowledgement, where nothing is promised yet"
)
_STYLES = {"+": "green", "X": "bold red", "?": "yellow", ".": ""}


def comparisons(rows: Sequence[Row]) -> list[grid.Crossing]:
    """Return a comparison for each engine and fault that was measured on more than one file system."""
    groups = grid.by_title(rows, lambda scenario: f"{scenario.engine}, {scenario.fault}")
    compared = [
        grid.crossing(title, group, lambda comparison: comparison.filesystem, str) for title, group in groups.items()
    ]
    return [comparison for comparison in compared if len(comparison.columns) >= _FILESYSTEMS_MIN]


def text(row: Row | None) -> str:
    """Return text such as `kept (42)`, `loses 19 (13)` or `damaged 23 (28), new 2`; a blank for what was not run."""
    if row is None:
        return ""
    outcome = row.outcome
    damaged, new = _damaged_contents(row)
    if damaged:
        words = f"damaged {len(damaged)}"
    elif outcome.lost_max:
        words = f"loses {outcome.lost_max}"
    elif outcome.lost_max is None:
        words = "nothing judged"
    else:
        words = "inconclusive" if row.judgement.result is Result.INCONCLUSIVE else "kept"
    harmed_count = outcome.kind_counts.get(VerdictKind.FILESYSTEM_DAMAGE, 0)
    harmed = f", file system {harmed_count}" if harmed_count else ""
    return f"{words} ({outcome.exposure_count}){f', new {len(new)}' if new else ''}{harmed}"


def _damaged_contents(row: Row) -> tuple[set[str], set[str]]:
    """Return the damaged contents, and the ones among them that were seen only before anything was promised."""
    damage = [verdict for verdict in row.outcome.measured.verdicts if verdict.kind.is_damage]
    is_late = row.promise is not None and row.promise.begins_with_ack
    damaged = {verdict.exposure for verdict in damage if verdict.acked or not is_late}
    return damaged, {verdict.exposure for verdict in damage} - damaged


def table(comparison: grid.Crossing) -> Table:
    """Return a comparison for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    view.add_column("settings", no_wrap=True)
    for word in comparison.columns:
        view.add_column(word)
    for line in comparison.lines:
        cells = [Text(text(row), style=_STYLES.get(grid.mark(row), "")) for row in line.rows]
        view.add_row(Text(line.name), *cells)
    return view
