"""What a command measures: the cells that were asked for, and the controls without which none of them can be green."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.planning.matrix import Profile


def chosen(patterns: Sequence[str], profile: Profile) -> list[Scenario]:
    """Return the cells of the patterns, or where there are none those that the profile measures by default."""
    from rig.analysis.dossiers import control_settings
    from rig.planning import matrix

    return matrix.select(patterns) if patterns else matrix.default_cells(profile, control_settings)


def with_controls(cells: Sequence[Scenario]) -> list[Scenario]:
    """Return the cells and the controls of their groups, each once, sorted by id."""
    from rig.analysis.controls import is_control
    from rig.planning import matrix

    groups = {_group(cell) for cell in cells}
    controls = [cell for cell in matrix.all_cells() if _group(cell) in groups and is_control(cell)]
    found = {cell.id: cell for cell in (*controls, *cells)}
    return [found[name] for name in sorted(found)]


def added_line(asked: Sequence[Scenario], measured: Sequence[Scenario]) -> str:
    """Return a line about the controls that are measured beside the cells that were asked for; empty without any."""
    ids = {cell.id for cell in asked}
    added = [cell for cell in measured if cell.id not in ids]
    if not added:
        return ""
    names = sorted({cell.settings_name for cell in added})
    what = "1 control is measured" if len(added) == 1 else f"{len(added)} controls are measured"
    return f"{what} too ({', '.join(names)}): without them nothing is green; --no-controls leaves them out"


def _group(cell: Scenario) -> tuple[str, str, str]:
    return cell.engine, cell.filesystem, cell.fault
