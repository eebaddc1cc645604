"""What is measured if no scenario is named: under each profile, and of a build that the user gives."""

from __future__ import annotations

from collections.abc import Callable

from rig.contract.faultspecs import MAIN_FAULTS, SPECS
from rig.contract.orders import Shim
from rig.contract.scenario import DEFAULT_WORKLOAD, Scenario, is_default
from rig.engines import engine_named, engines, settings_name
from rig.filesystems import default_filesystems
from rig.planning import tunings
from rig.planning.matrix import DEFAULT_FAULTS, Profile, is_unprotected, scenarios_of
from rig.workloads import MEASURED, QUICK

# Engine and fault -> the settings, by name, that must fail under it (`rig.analysis.judging.controls`).
ControlsOf = Callable[[str, str], tuple[str, ...]]
_BARE_FAULTS = (*DEFAULT_FAULTS, "processkill")
# Workload and fault of what is measured too of a build that the user gives, and in a whole matrix. Some planted bugs
# show in one of these alone (docs/findings/measurements-planted-bugs.md).
FURTHER = frozenset({
    ("life", "torn"), ("life", "recoverycut"), ("writers", "powercut"),
    (DEFAULT_WORKLOAD, "recoverycut"), (DEFAULT_WORKLOAD, "secondcut"), (DEFAULT_WORKLOAD, "killcut"),
})  # fmt: skip
# The same for an engine's cross-checks alone: a recording of each later life takes seconds, and settings that share
# their journal recover alike.
FURTHER_OF_FEW = frozenset({("life", "secondcut")})


def default_scenarios(wanted: Profile, controls: ControlsOf, *, is_build: bool = False) -> list[Scenario]:
    """Return what is measured if no scenario is named; of a build that the user gives it is more.

    The quick profile takes the essentials: settings that promise something when a process dies, under the faults that
    most people mean, and the controls. The other profiles take the whole fault matrix: every scenario with a promise to
    break, a few without one that show what is lost, and the controls.
    """
    keeps = _in_whole if wanted.is_whole else _in_quick
    goes_wide = wanted.is_whole or is_build
    offered = scenarios_of((engine for engine in engines() if engine.spec.is_default), default_filesystems())
    return [scenario for scenario in offered if keeps(scenario, controls) or (goes_wide and _goes_further(scenario))]


def _goes_further(scenario: Scenario) -> bool:
    # An engine whose syncs do nothing is the control of the others.
    is_plain = not scenario.tuned and scenario.shim in {Shim.NONE, Shim.EATMYDATA}
    is_of_few = settings_name(scenario.settings) in engine_named(scenario.engine).spec.cross_checks
    further = FURTHER | FURTHER_OF_FEW if is_of_few else FURTHER
    return is_plain and (scenario.workload_name, scenario.fault) in further and _has_own_promise(scenario)


def _in_quick(scenario: Scenario, controls: ControlsOf) -> bool:
    if scenario.tuned:
        return False
    if not is_default(scenario.workload_name):
        is_measured = scenario.workload_name in QUICK
        return is_measured and scenario.fault == DEFAULT_FAULTS[0] and _has_own_promise(scenario)
    is_control = settings_name(scenario.settings) in controls(scenario.engine, scenario.fault)
    is_wanted = is_control or not engine_named(scenario.engine).spec.is_volatile(scenario.settings)
    return scenario.fault in DEFAULT_FAULTS and is_wanted and not scenario.dropped_sync


def _has_own_promise(scenario: Scenario) -> bool:
    """Return whether the engine promises something under these settings that no equal settings show as well."""
    same_as = engine_named(scenario.engine).spec.same_as
    return settings_name(scenario.settings) not in same_as and not is_unprotected(scenario)


def _in_whole(scenario: Scenario, controls: ControlsOf) -> bool:
    if scenario.tuned:
        return scenario.fault in DEFAULT_FAULTS and tunings.is_nightly(scenario)
    if not is_default(scenario.workload_name):
        is_measured = scenario.workload_name in MEASURED
        return is_measured and scenario.fault in DEFAULT_FAULTS and _has_own_promise(scenario)
    spec, name = engine_named(scenario.engine).spec, settings_name(scenario.settings)
    is_shown = name in spec.cross_checks or name in controls(scenario.engine, scenario.fault)
    if spec.is_unprotected(scenario.settings) and scenario.fault not in _BARE_FAULTS and not is_shown:
        return False
    # The cross-checks test the rig, so a few settings are enough.
    if SPECS[scenario.fault].is_cross_check:
        return is_shown
    # Settings documented as equal to others make the same syncs and are measured only under the main faults.
    return name not in spec.same_as or (scenario.fault in MAIN_FAULTS and not scenario.dropped_sync)
