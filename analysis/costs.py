"""What each setting costs a transaction: virtual figures of the recordings, and real ones beside them if there are any.

Virtual figures are those of the device of the scenario, and the same on every run. Real ones come from `rig speed`, of
the same engine, settings and workload on the user's own disk. Only ratios between rows compare with the virtual ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rig.analysis.outcome import Outcome, Summary
from rig.analysis.speed import ArmSpeed, summed_up
from rig.speed.speeds import ArmFacts, Speeds


@dataclass(frozen=True)
class Cost:
    """One setting on one device; `real` is None where it was not measured on a disk."""

    outcome: Outcome
    real: ArmSpeed | None

    @property
    def name(self) -> str:
        """Return the setting, with the file system and the device, which the virtual figures depend on."""
        scenario = self.outcome.scenario
        return f"{self.outcome.settings_name}, {scenario.filesystem} on {scenario.device}"

    @property
    def real_per_s(self) -> float | None:
        """Return the real transactions per second."""
        found = self.real.figures.get("transactions_per_s") if self.real else None
        return found.value if found else None


def costs(summary: Summary, speeds: Speeds | None) -> list[Cost]:
    """Return each setting once, in the order of the summary: the first of its scenarios whose speed counts."""
    found: dict[str, Cost] = {}
    real = _real(speeds) if speeds else []
    for row in summary.rows:
        outcome = row.outcome
        if outcome.latencies is None:
            continue
        cost = Cost(outcome, next((arm for facts, arm in real if _is_same(outcome, facts)), None))
        found.setdefault(cost.name, cost)
    return list(found.values())


def _real(speeds: Speeds) -> list[tuple[ArmFacts, ArmSpeed]]:
    return [(speeds.arms[arm.name], arm) for arm in summed_up(speeds)]


def _is_same(outcome: Outcome, facts: ArmFacts) -> bool:
    """Return whether an arm is the setting of a scenario under its workload, and nothing was left out or put in."""
    scenario = outcome.scenario
    asked: Mapping[str, str] = scenario.settings
    has_settings = asked.items() <= facts.settings.items()
    is_plain = scenario.shim == "none" and facts.load == scenario.workload_name
    return facts.engine == scenario.engine and has_settings and is_plain
