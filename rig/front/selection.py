"""Select what a command measures: the requested scenarios, and the controls without which none can be green."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rig.contract.scenario import WorkloadSpec

if TYPE_CHECKING:
    from rig.analysis.judging.controls import Group
    from rig.contract.scenario import Scenario
    from rig.planning.matrix import Profile


def select(patterns: Sequence[str], profile: Profile, *, is_build: bool = False) -> list[Scenario]:
    """Return the scenarios that match the patterns; without patterns, the default ones of the profile or of a build."""
    from rig.analysis.dossiers import control_settings
    from rig.planning import defaults, matrix

    if patterns:
        return matrix.select(patterns)
    return defaults.default_scenarios(profile, control_settings, is_build=is_build)


def with_controls(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the scenarios and the controls that they need, each once, sorted by id.

    A group needs all of its settings that must fail. Of a control by a shim, it needs the one with the settings of a
    scenario; without such a one, the first.
    """
    from rig.analysis.judging.controls import group_of, is_control
    from rig.contract.orders import Shim
    from rig.engines import engine_named
    from rig.filesystems import filesystems
    from rig.planning import matrix

    words = {scenario.filesystem for scenario in scenarios}
    offered = matrix.scenarios_of(
        (engine_named(name) for name in sorted({scenario.engine for scenario in scenarios})),
        [filesystem for filesystem in filesystems() if filesystem.word in words],
    )
    settings: dict[Group, list[Mapping[str, str]]] = {}
    for scenario in scenarios:
        settings.setdefault(group_of(scenario), []).append(scenario.settings)
    controls: dict[tuple[Group, str], list[Scenario]] = {}
    for scenario in offered:
        if (group := group_of(scenario)) in settings and is_control(scenario):
            controls.setdefault((group, scenario.shim), []).append(scenario)
    chosen = {scenario.id: scenario for scenario in scenarios}
    for (group, shim), alike in controls.items():
        own = alike if shim == Shim.NONE else [each for each in alike if each.settings in settings[group]] or alike[:1]
        chosen |= {control.id: chosen.get(control.id, control) for control in own}
    return [chosen[name] for name in sorted(chosen)]


def tuned_line(tuning: Mapping[str, str], pause_ms: int) -> str:
    """Return a line naming the tuning and the pause that differ from the defaults, empty if neither does."""
    words = [f"{name}={value}" for name, value in tuning.items()]
    if pause_ms != WorkloadSpec.think_ms:
        words.append(f"a mean pause of {pause_ms} ms before a transaction")
    return f"tuned: {', '.join(words)}" if words else ""


def added_line(asked: Sequence[Scenario], measured: Sequence[Scenario]) -> str:
    """Return a line naming the controls that are measured too, empty if none are added."""
    ids = {scenario.id for scenario in asked}
    added = [scenario for scenario in measured if scenario.id not in ids]
    if not added:
        return ""
    names = sorted({scenario.settings_name for scenario in added})
    what = "1 control is measured" if len(added) == 1 else f"{len(added)} controls are measured"
    return f"{what} too ({', '.join(names)}): without them nothing is green; --no-controls leaves them out"
