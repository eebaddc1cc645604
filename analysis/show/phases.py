"""Which choices of writes were tried in each phase of a commit: the other half of the evidence for a zero.

A missing barrier shows in the states in which one write has landed and another has not. So for each scenario of a power
cut the rig counts how many of these ordered pairs some state had, over all epochs that are alike
(`rig.faults.choosing.phases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.analysis.judging.metrics import Outcome
    from rig.analysis.judging.outcome import Summary
    from rig.contract.results import PhaseFacts

_NAMES_MAX = 4


@dataclass(frozen=True)
class Phases:
    """The phases of one scenario that have pairs; the phases with the most epochs come first."""

    outcome: Outcome
    rows: tuple[PhaseFacts, ...]


def pairs_text(outcome: Outcome) -> str:
    """Return text such as `46 % of 918`, or a dash for a fault that does not lose whole writes."""
    plan = outcome.scenario.plan
    if not plan.pair_count:
        return "-"
    # Rounded down, so that 100 % means every pair.
    return f"{100 * plan.pairs_tried // plan.pair_count} % of {plan.pair_count}"


def phases(summary: Summary) -> list[Phases]:
    """Return the phases with pairs of every scenario. Sabotaged scenarios are left out, because they claim no zero."""
    found = [
        Phases(row.outcome, tuple(one for one in row.outcome.scenario.plan.phases if one.pair_count))
        for row in summary.rows
        if not row.is_sabotaged
    ]
    return [one for one in found if one.rows]


def lines(summary: Summary) -> list[str]:
    """Return at most one line for the text table: the scenarios with the smallest share of pairs tried."""
    outcomes = [one.outcome for one in phases(summary)]
    outcomes.sort(key=lambda outcome: outcome.scenario.plan.pairs_tried / outcome.scenario.plan.pair_count)
    if not outcomes:
        return []
    told = [f"{one.settings_name} ({one.scenario.fault}) {pairs_text(one)}" for one in outcomes[:_NAMES_MAX]]
    more = f", and more of {len(outcomes) - _NAMES_MAX} others" if len(outcomes) > _NAMES_MAX else ""
    return [f"pairs of writes tried, the first landed and the second lost: {', '.join(told)}{more}"]
