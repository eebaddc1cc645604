"""Two runs side by side: what differs between them, and what each difference rests on.

The first run is the baseline of the second: what got worse is worse by the rules of `rig.analysis.history.changes`.
If both runs cut the same recording, their crash states can be compared one by one. Then sampling alone makes nothing
worse: only a state that both judged, with different verdicts, makes a scenario worse. A loss in a state that only the
second run tried is no answer; the command that judges the state in the first run gives one. If the recordings differ,
the crash states do too, and the figures are compared by their spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from rig.analysis.history.baseline import Provenance, baseline_of, evidence_of, with_device
from rig.analysis.history.changes import Aspect, Change, Changes, changes
from rig.analysis.history.figures import Figures, figures
from rig.analysis.judging.metrics import loses, worst_first
from rig.analysis.judging.outcome import Row, Summary
from rig.contract.results import Verdict

_STATES_MAX = 3


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs; `run_dir` is how a command names it, empty for the default directory."""

    name: str
    profile: str
    summary: Summary
    failures: Mapping[str, str]
    run_dir: str = ""


@dataclass(frozen=True)
class TurnedState:
    """A crash state that both runs judged, with different verdicts."""

    before: Verdict
    after: Verdict


@dataclass(frozen=True)
class ScenarioPair:
    """One scenario in both runs; None on the side that lacks it."""

    name: str
    before: Row | None
    after: Row | None
    # What the two rest on and does not agree, as (what, before, after).
    evidence: tuple[tuple[str, str, str], ...] = ()
    is_same_recording: bool = False
    # States that both judged, and among them those with different verdicts, the worst first.
    shared_count: int = 0
    turned: tuple[TurnedState, ...] = ()
    # The worst losing states that only the second run judged.
    fresh: tuple[Verdict, ...] = ()

    @property
    def figures(self) -> tuple[Figures | None, Figures | None]:
        """Return the figures of both sides."""
        return (figures(self.before) if self.before else None, figures(self.after) if self.after else None)

    @property
    def rests_on(self) -> str:
        """Return what a difference rests on, in a few words."""
        if not (self.before and self.after):
            return "measured in one run only"
        if self.is_same_recording:
            return f"the same recording, {self.shared_count} states judged in both"
        return "two recordings, compared by their spans"


@dataclass(frozen=True)
class RunComparison:
    """All scenarios of two runs, and what changed."""

    before: ComparedRun
    after: ComparedRun
    pairs: tuple[ScenarioPair, ...]
    changes: Changes
    # What all pairs have in common that differs, as (what, before, after).
    common: tuple[tuple[str, str, str], ...]


def comparison(before: ComparedRun, after: ComparedRun) -> RunComparison:
    """Compare two runs."""
    old, new = _rows(before.summary), _rows(after.summary)
    pairs = [_pair(name, old.get(name), new.get(name), before, after) for name in sorted({*old, *new})]
    both = [set(pair.evidence) for pair in pairs if pair.before and pair.after]
    common = set.intersection(*both) if both else set()
    own = [replace(pair, evidence=tuple(part for part in pair.evidence if part not in common)) for pair in pairs]
    known = baseline_of(before.summary, before.profile, _name_of)
    all_changes = changes(known, after.summary, after.profile, after.failures, name_of=_name_of)
    judged = _by_states({pair.name: pair for pair in own}, all_changes)
    return RunComparison(before, after, tuple(own), judged, tuple(sorted(common)))


def _rows(summary: Summary) -> dict[str, Row]:
    return {_name_of(row): row for row in summary.rows}


def _name_of(row: Row) -> str:
    """Return what pairs two rows: the user names both runs, so two programs are compared too."""
    scenario = row.outcome.scenario
    return with_device(scenario.id, scenario.device.name)


def _pair(name: str, old: Row | None, new: Row | None, before: ComparedRun, after: ComparedRun) -> ScenarioPair:
    if not (old and new):
        return ScenarioPair(name, old, new)
    first, second = evidence_of(old, before.profile), evidence_of(new, after.profile)
    differing = tuple(_differing(first, second))
    if old.outcome.measured.recording.digest != new.outcome.measured.recording.digest:
        return ScenarioPair(name, old, new, differing, fresh=_worst(new.outcome.measured.verdicts))
    known, own = (_by_state(row) for row in (old, new))
    both = known.keys() & own.keys()
    turned = [TurnedState(known[key], own[key]) for key in sorted(both) if _answer(known[key]) != _answer(own[key])]
    # The worst states of the second run first.
    ranked = {
        (verdict.state, verdict.entry): rank
        for rank, verdict in enumerate(worst_first(state.after for state in turned))
    }
    turned.sort(key=lambda state: ranked[state.after.state, state.after.entry])
    fresh = _worst(tuple(verdict for key, verdict in own.items() if key not in both))
    return ScenarioPair(
        name, old, new, differing, is_same_recording=True, shared_count=len(both), turned=tuple(turned), fresh=fresh
    )


def _differing(first: Provenance, second: Provenance) -> list[tuple[str, str, str]]:
    """Return the parts of the evidence that differ; how many states were judged is a result, not evidence."""
    pairs = [(field.name, getattr(first, field.name), getattr(second, field.name)) for field in fields(Provenance)]
    return [(name, str(old), str(new)) for name, old, new in pairs if old != new and name != "states"]


def _by_state(row: Row) -> dict[tuple[str, int], Verdict]:
    return {(verdict.state, verdict.entry): verdict for verdict in row.outcome.measured.verdicts}


def _answer(verdict: Verdict) -> tuple[str, int | None]:
    return verdict.kind.value, verdict.recovered


def _worst(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    return worst_first(filter(loses, verdicts))[:_STATES_MAX]


def _by_states(pairs: Mapping[str, ScenarioPair], changes: Changes) -> Changes:
    """Return the changes, with those taken back that no state of the same recording shows to be worse."""
    worse: list[Change] = []
    unanswered = list(changes.unanswered)
    for change in changes.worse:
        pair = pairs.get(change.subject)
        is_shown = pair is None or not pair.is_same_recording or _is_worse(pair)
        if is_shown or change.aspect not in {Aspect.PROMISE, Aspect.LOSS, Aspect.DAMAGE}:
            worse.append(change)
        else:
            text = f"{change.aspect}, in states that only the second run tried: {change.text}"
            unanswered.append(Change(change.subject, Aspect.ANSWER, text))
    return replace(changes, worse=tuple(worse), unanswered=tuple(unanswered))


def _is_worse(pair: ScenarioPair) -> bool:
    """Return whether a state that both runs judged lost more or broke in the second."""
    return any(
        (loses(state.after), state.after.lost) > (loses(state.before), state.before.lost)
        or worst_first((state.before, state.after))[0] is state.after
        for state in pair.turned
    )
