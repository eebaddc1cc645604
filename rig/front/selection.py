"""Select what a command measures: the requested scenarios, and the controls without which none can be green."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rig.contract.scenario import WorkloadSpec

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.planning.matrix import Profile


def chosen(patterns: Sequence[str], profile: Profile) -> list[Scenario]:
    """Return the scenarios that match the patterns; without patterns, the default scenarios of the profile."""
    from rig.analysis.dossiers import control_settings
    from rig.planning import matrix

    return matrix.select(patterns) if patterns else matrix.default_scenarios(profile, control_settings)


def with_controls(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the scenarios and the controls of their groups, each once, sorted by id."""
    return _with(scenarios, lambda _: True)


def with_own_controls(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the scenarios and the controls of their groups that have the same settings."""
    return _with(scenarios, lambda control: any(control.settings == scenario.settings for scenario in scenarios))


def tuned_line(tuning: Mapping[str, str], pause_ms: int) -> str:
    """Return a line naming the tuning and the pause that differ from the defaults, empty if neither does."""
    words = [f"{name}={value}" for name, value in tuning.items()]
    if pause_ms != WorkloadSpec.think_ms:
        words.append(f"a mean pause of {pause_ms} ms before a transaction")
    return f"tuned: {', '.join(words)}" if words else ""


def _with(scenarios: Sequence[Scenario], is_wanted: Callable[[Scenario], bool]) -> list[Scenario]:
    from rig.analysis.judging.controls import group_of, is_control
    from rig.engines import named
    from rig.filesystems import filesystems
    from rig.planning import matrix

    groups = {group_of(scenario) for scenario in scenarios}
    words = {scenario.filesystem for scenario in scenarios}
    offered = matrix.scenarios_of(
        (named(name) for name in sorted({scenario.engine for scenario in scenarios})),
        [found for found in filesystems() if found.word in words],
    )
    controls = [one for one in offered if group_of(one) in groups and is_control(one) and is_wanted(one)]
    found = {scenario.id: scenario for scenario in (*controls, *scenarios)}
    return [found[name] for name in sorted(found)]


def added_line(asked: Sequence[Scenario], measured: Sequence[Scenario]) -> str:
    """Return a line naming the controls that are measured too, empty if none are added."""
    ids = {scenario.id for scenario in asked}
    added = [scenario for scenario in measured if scenario.id not in ids]
    if not added:
        return ""
    names = sorted({scenario.settings_name for scenario in added})
    what = "1 control is measured" if len(added) == 1 else f"{len(added)} controls are measured"
    return f"{what} too ({', '.join(names)}): without them nothing is green; --no-controls leaves them out"
