"""Which choices of writes were tried in each phase of a commit: the other half of the evidence for a zero.

A missing barrier shows in the states in which one write has landed and another has not. So for each scenario of a power
cut the rig counts how many of these ordered pairs some state had, over all epochs that are alike
(`rig.faults.choosing.phases`). A missing checksum shows in the states in which one write is torn and the others landed,
or none did. So for torn writes the rig counts these.

If a scenario tried less than `_PAIRS_FEW` of its pairs or tears, the answer of the run says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rig.analysis.dossiers import Keeps
from rig.analysis.judging.metrics import Outcome
from rig.analysis.judging.outcome import Result, Summary
from rig.contract.results import PhaseFacts

_NAMES_MAX = 4
_PAIRS_FEW = 0.5


@dataclass(frozen=True)
class Phases:
    """The phases of one scenario that have pairs; the phases with the most epochs come first."""

    outcome: Outcome
    rows: tuple[PhaseFacts, ...]


def pairs_text(outcome: Outcome) -> str:
    """Return text such as `46 % of 918`, `58 % of 96 tears`, or a dash for a fault that neither loses nor tears."""
    plan = outcome.measured.plan
    if plan.tear_count:
        return f"{_share(plan.tears_tried, plan.tear_count)} tears"
    return _share(plan.pairs_tried, plan.pair_count) if plan.pair_count else "-"


def _share(part: int, whole: int) -> str:
    # Rounded down, so that 100 % means every one.
    return f"{100 * part // whole} % of {whole}"


def phases(summary: Summary) -> list[Phases]:
    """Return the phases with pairs or tears of all scenarios but sabotaged ones, because these claim no zero."""
    shown_phases = [
        Phases(
            row.outcome,
            tuple(phase for phase in row.outcome.measured.plan.phases if phase.pair_count or phase.tear_count),
        )
        for row in summary.rows
        if not row.is_sabotaged
    ]
    return [phase for phase in shown_phases if phase.rows]


def lines(summary: Summary) -> list[str]:
    """Return at most two lines for the text table: the scenarios with the smallest share of pairs, and of tears."""
    outcomes = [phase.outcome for phase in phases(summary)]
    torn = [outcome for outcome in outcomes if outcome.measured.plan.tear_count]
    whole = [outcome for outcome in outcomes if outcome.measured.plan.pair_count]
    kinds = (
        ("pairs of writes tried, the first landed and the second lost", whole),
        ("plain tears tried, one write torn and the others landed or lost", torn),
    )
    return [f"{what}: {_least_tried(some)}" for what, some in kinds if some]


def _least_tried(outcomes: list[Outcome]) -> str:
    outcomes.sort(key=_share_tried)
    words = [
        f"{outcome.settings_name} ({outcome.scenario.fault}) {pairs_text(outcome)}" for outcome in outcomes[:_NAMES_MAX]
    ]
    more = f", and more of {len(outcomes) - _NAMES_MAX} others" if len(outcomes) > _NAMES_MAX else ""
    return f"{', '.join(words)}{more}"


def _share_tried(outcome: Outcome) -> float:
    plan = outcome.measured.plan
    return (plan.pairs_tried + plan.tears_tried) / (plan.pair_count + plan.tear_count)


def few_pairs(summary: Summary) -> str:
    """Return sentences for the answer of a run: what few pairs leave open, and what more states would change.

    Where nothing is promised, nothing is claimed that a missing flush could prove wrong.
    """
    promised = [
        row.outcome
        for row in summary.rows
        if row.promise and row.promise.keeps is not Keeps.ANYTHING and not row.is_sabotaged
    ]
    outcomes = [outcome for outcome in promised if outcome.measured.plan.pair_count]
    few = sorted((outcome for outcome in outcomes if _share_tried(outcome) < _PAIRS_FEW), key=_share_tried)
    if not few:
        return ""
    least, plan = few[0], few[0].measured.plan
    others = f", and less than {100 * _PAIRS_FEW:.0f} % by {len(few) - 1} more" if few[1:] else ""
    tries = f"`--states {plan.states_for_pairs}` tries {plan.pairs_then} of them. " if plan.states_for_pairs else ""
    return (
        f" Few pairs of writes were tried: {pairs_text(least)} by {least.settings_name} under {least.scenario.fault}"
        f"{others}. A flush that is missing between two of the other writes may not show. {tries}"
    ).rstrip()


def few_tears(summary: Summary) -> str:
    """Return a sentence for the answer of a run on what few plain tears leave open, of promises that were kept."""
    kept = [row.outcome for row in summary.rows if row.judgement.result is Result.KEPT and not row.is_sabotaged]
    torn = [outcome for outcome in kept if outcome.measured.plan.tear_count]
    few = sorted((outcome for outcome in torn if _share_tried(outcome) < _PAIRS_FEW), key=_share_tried)
    if not few:
        return ""
    others = f", and less than {100 * _PAIRS_FEW:.0f} % by {len(few) - 1} more" if few[1:] else ""
    return (
        f" Few writes were torn alone: {pairs_text(few[0])} were tried by {few[0].settings_name} under"
        f" {few[0].scenario.fault}{others}. A checksum that misses one of the others may not show;"
        " `--states` tries more."
    )
