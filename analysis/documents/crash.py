"""Judges claims about loss from a run directory: what its scenarios lost, over how many file contents.

A claim is judged only if all its scenarios were measured with the usual build and tuning, if none of them is
inconclusive, and if the controls of their groups fired in that run. A verdict that rests on how much was lost or
damaged in an arm needs CONTENTS_MIN distinct file contents there, with one exception: if more states could not change
the verdict, any loss is enough, however few contents show it, and it is named as a state to replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rig.analysis.advice.candidates import variant
from rig.analysis.documents.answer import Answer, decide, not_measured
from rig.analysis.documents.claim import Claim, ClaimVerdict, Scenarios
from rig.analysis.documents.condition import Condition, Figure
from rig.analysis.judging.controls import group_of
from rig.analysis.judging.metrics import loses, worst_first
from rig.analysis.judging.outcome import Result, Row, Summary, summarise
from rig.analysis.judging.statistics import proportion
from rig.analysis.show.table import replay_line
from rig.contract.results import Verdict as StateVerdict
from rig.contract.results import VerdictKind
from rig.store import Run

CONTENTS_MIN = 300
_REPLAYS_MAX = 3
# A verdict that rests on one of these is about loss.
_OF_LOSS = {"lost_max", "losing", "damaged", "harmed"}
_NONE_GIVEN = "no run directory was found: measure the claims about loss with `rig claims --profile nightly`"


@dataclass(frozen=True)
class Evidence:
    """What the claims need from a run."""

    summary: Summary | None = None
    # Where the states are replayed from; empty for the default directory.
    run_dir: str = ""
    failures: Mapping[str, str] | None = None
    # Sentences that say which parts of the run could not be read.
    damaged: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, Row]:
        """Return the scenarios of the run by their ids."""
        return {row.outcome.scenario.id: row for row in self.summary.rows} if self.summary else {}


def evidence_of(folder: Path, wanted: Sequence[str], default_folder: Path) -> Evidence:
    """Return what a run directory holds about some scenarios and everything that is a control for them."""
    run = Run.open(folder)
    results, damaged = run.results()
    groups = {group_of(result.scenario) for result in results if result.scenario.id in wanted}
    own = [result for result in results if group_of(result.scenario) in groups]
    run_dir = "" if folder.parent == default_folder else str(folder)
    # `judge` checks the exposure for each claim, over all its scenarios.
    return Evidence(summarise(own, exposure_min=0), run_dir, run.failures(), tuple(map(str, damaged)))


def judge(claim: Claim, evidence: Evidence) -> Answer:
    """Return the answer to a claim about loss."""
    assert isinstance(claim.experiment, Scenarios)
    experiment, rows = claim.experiment, evidence.rows
    if evidence.summary is None:
        return not_measured(claim, _NONE_GIVEN)
    if trouble := _trouble(experiment, evidence):
        return not_measured(claim, trouble)
    arms = {**experiment.controls, **experiment.arms}
    figures: dict[str, Figure | None] = {
        f"{arm}.{name}": value
        for arm, ids in arms.items()
        for name, value in _figures([rows[scenario_id] for scenario_id in ids]).items()
    }
    answer = decide(claim, figures)
    if answer.verdict is ClaimVerdict.NOT_MEASURED:
        return answer
    examples = _examples(experiment, evidence)
    shown = experiment.shows.partition(".")[0] if examples else ""
    exempt = shown if _is_final(claim, answer.verdict, shown, figures) else ""
    few = [arm for arm in _resting_on(claim, answer.verdict) if arm != exempt and _count(figures, arm) < CONTENTS_MIN]
    if few:
        counts = ", ".join(f"{_count(figures, arm)} of {CONTENTS_MIN} file contents ({arm})" for arm in few)
        return replace(not_measured(claim, f"{counts}; it would be {answer.verdict}", figures), replays=examples)
    return replace(answer, replays=examples)


def _trouble(experiment: Scenarios, evidence: Evidence) -> str:
    """Return what keeps the scenarios of a claim from being evidence; empty if nothing does."""
    rows = evidence.rows
    if missing := [scenario_id for scenario_id in experiment.ids if scenario_id not in rows]:
        reason = (evidence.failures or {}).get(missing[0], "")
        if reason:
            return f"{missing[0]} could not be measured: {reason}"
        if damages := [text for text in evidence.damaged if missing[0] in text]:
            return damages[0]
        return f"{missing[0]} is not in the run" + (f", nor are {len(missing) - 1} more" if len(missing) > 1 else "")
    doubtful = [
        scenario_id for scenario_id in experiment.ids if rows[scenario_id].judgement.result is Result.INCONCLUSIVE
    ]
    if doubtful:
        return f"{doubtful[0]} is inconclusive: {'; '.join(rows[doubtful[0]].judgement.reasons)}"
    for scenario_id in experiment.ids:
        if words := variant(rows[scenario_id].outcome.scenario):
            return (
                f"{scenario_id} was measured with {words}, and what it is about is measured without: "
                "`rig claims --run-dir`"
            )
    return ""


def _figures(rows: Sequence[Row]) -> dict[str, Figure | None]:
    """Return the figures of one arm, over all its scenarios."""
    verdicts = [verdict for row in rows for verdict in row.outcome.measured.verdicts]
    judged = [verdict for verdict in verdicts if not verdict.kind.is_infrastructure]
    explained = [verdict for verdict in judged if not verdict.kind.is_damage]
    contents = {verdict.exposure for verdict in judged if verdict.files or verdict.kind.is_damage}
    damaged = {verdict.exposure for verdict in judged if verdict.kind.is_damage}
    losing = {verdict.exposure for verdict in explained if verdict.lost > 0}
    of_disk = sum(verdict.repaired or verdict.kind is VerdictKind.FILESYSTEM_DAMAGE for verdict in verdicts)
    flushes = sum(row.outcome.measured.recording.flush_count for row in rows)
    transactions = sum(row.outcome.measured.recording.transaction_count for row in rows)
    return {
        "states": len(judged),
        "contents": len(contents),
        "lost_max": max((verdict.lost for verdict in explained), default=None),
        "losing": len(losing),
        "losing_bound": _upper_bound(len(losing), len(contents)),
        "damaged": len(damaged),
        "damaged_bound": _upper_bound(len(damaged), len(contents)),
        "harmed": sum(loses(verdict) for verdict in judged) + of_disk,
        "flush_per_tx": flushes / transactions if transactions else None,
    }


def _upper_bound(count: int, total: int) -> str:
    text = proportion(count, total).bound_text
    return text.removeprefix("<= ") if text.startswith("<= ") else "100 %"


def _count(figures: Mapping[str, Figure | None], arm: str) -> int:
    return int(figures[f"{arm}.contents"] or 0)


def _resting_on(claim: Claim, verdict: ClaimVerdict) -> list[str]:
    """Return the arms on whose losses a verdict rests, in their order."""
    assert isinstance(claim.experiment, Scenarios)
    names = [name.partition(".") for condition in dict(claim.thresholds)[verdict] for name in condition.names]
    return list(dict.fromkeys(arm for arm, _, what in names if what in _OF_LOSS and arm in claim.experiment.arms))


def _is_final(claim: Claim, verdict: ClaimVerdict, arm: str, figures: Mapping[str, Figure | None]) -> bool:
    """Return whether more states of an arm could not change a verdict."""
    thresholds = dict(claim.thresholds)
    before = list(thresholds)[: list(thresholds).index(verdict)]
    return _grows(arm, thresholds[verdict]) and not any(
        _may_hold(arm, thresholds[earlier], figures) for earlier in before
    )


def _may_hold(arm: str, conditions: Sequence[Condition], figures: Mapping[str, Figure | None]) -> bool:
    """Return whether conditions may still become true if an arm loses more: not if it has lost too much already."""
    exceeded = {"==": ">", "<=": ">", "<": ">="}
    of_loss = {f"{arm}.{what}" for what in _OF_LOSS}
    limits = [
        condition
        for condition in conditions
        if condition.name in of_loss and condition.operator in exceeded and not condition.other
    ]
    return bool(conditions) and not any(
        replace(condition, operator=exceeded[condition.operator]).holds(figures) for condition in limits
    )


def _grows(arm: str, conditions: Sequence[Condition]) -> bool:
    """Return whether more states could not undo these conditions: what an arm lost only ever stands on the larger side.

    "Less than another arm" rests on what was not seen in this arm, and so on the number of states.
    """
    larger = [condition.name for condition in conditions if condition.operator in {">", ">="}]
    larger += [condition.other for condition in conditions if condition.operator in {"<", "<="}]
    named = [name for condition in conditions for name in condition.names if name.partition(".")[0] == arm]
    return all(name in larger for name in named if name.partition(".")[2] in _OF_LOSS)


def _examples(experiment: Scenarios, evidence: Evidence) -> tuple[str, ...]:
    """Return the commands that replay the worst states of the arm that a claim shows."""
    arm, _, what = experiment.shows.partition(".")
    broken: list[tuple[str, StateVerdict]] = []
    for scenario in experiment.arms.get(arm, ()):
        verdicts = evidence.rows[scenario].outcome.measured.verdicts
        broken += [
            (scenario, verdict)
            for verdict in worst_first(verdicts)
            if (verdict.kind.is_damage if what == "damaged" else verdict.kind is VerdictKind.LOST_SUFFIX)
        ]
    worst = sorted(broken, key=lambda item: -item[1].lost)
    # A state may be judged at several instants.
    lines = dict.fromkeys(replay_line(scenario, verdict, evidence.run_dir) for scenario, verdict in worst)
    return tuple(lines)[:_REPLAYS_MAX]
