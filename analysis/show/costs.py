"""What each setting costs a transaction: virtual figures from the recordings, and real ones where they were measured.

Virtual figures belong to the scenario's device and are the same in every run. Real ones come from `rig speed`, for the
same engine, settings and workload on the user's own disk. Compare real and virtual figures only by ratios between rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from rig.analysis.judging.metrics import Outcome
from rig.analysis.judging.outcome import Summary
from rig.analysis.judging.speed import ArmSpeed, arm_speeds
from rig.engines import find_engine
from rig.speed.speeds import ArmFacts, Speeds


@dataclass(frozen=True)
class Cost:
    """One setting on one device; `real` is None where it was not measured on a disk."""

    outcome: Outcome
    real: ArmSpeed | None

    @property
    def name(self) -> str:
        """Return the setting, with the engine unless it is the default one, the file system and the device."""
        scenario = self.outcome.scenario
        engine = find_engine(scenario.engine)
        # Engines have words in common, such as nosync.
        of = "" if engine and engine.spec.is_default else f"{scenario.engine}-"
        return f"{of}{self.outcome.settings_name}, {scenario.filesystem} on {scenario.device.name}"

    @property
    def real_per_s(self) -> float | None:
        """Return the real transactions per second."""
        figure = self.real.figures.get("transactions_per_s") if self.real else None
        return figure.value if figure else None


def costs(summary: Summary, speeds: Speeds | None) -> list[Cost]:
    """Return each setting once, by the first of its scenarios whose speed counts, in the order of the summary."""
    named: dict[str, Cost] = {}
    real = [(speeds.arms[arm.name], arm) for arm in arm_speeds(speeds)] if speeds else []
    for row in summary.rows:
        outcome = row.outcome
        if outcome.latencies is None:
            continue
        cost = Cost(outcome, next((arm for facts, arm in real if _is_same(outcome, facts)), None))
        named.setdefault(cost.name, cost)
    return list(named.values())


def _is_same(outcome: Outcome, facts: ArmFacts) -> bool:
    """Return whether an arm has the settings, the tuning and the workload of a scenario that has no shim."""
    scenario = outcome.scenario
    has_settings = scenario.all_settings == facts.settings
    is_plain = scenario.shim == "none" and facts.load == scenario.workload_name
    return facts.engine == scenario.engine and has_settings and is_plain
