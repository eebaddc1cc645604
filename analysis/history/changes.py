"""What got worse in a run, what has no answer any more, and what got better, compared with a baseline.

A scenario gets worse if
- its promise is broken, and was kept, not judged or not recorded;
- its loss is above its span: the worst state, the mean, or the share of damaged states. With another seed a few states
  that lose more count for nothing, as long as chance explains that the recorded run had none of them;
- its exposure is below its span;
- its speed is below its span. Virtual speed is exact: with the same seed one per cent is worse. With another seed the
  workload is another one, and the span is what both runs tell about a third.
Figures are compared only with a run that looked equally closely: the same profile and number of transactions. If the
recording is the same, bit for bit, then nothing is left to chance, and any larger loss is worse.

A group gets worse if one of its controls fired and is silent now. A scenario has no answer, which is never green, if it
is inconclusive, was not measured although the run was asked for it, is not judged any more, or has the first damage of
a promise that only losses broke. So has a group that lacks a control that fired. What the baseline records as broken
does not fail again. What got better never fails. Each change names the recorded and the new figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from rig.analysis.history import spans
from rig.analysis.history.baseline import Baseline, Entry, entry_of, evidence_of, key_of
from rig.analysis.history.spans import FigureSpan
from rig.analysis.judging.controls import group_of
from rig.analysis.judging.metrics import loss_of, outcome
from rig.analysis.judging.outcome import Result, Row, Summary

# With the same seed, a virtual speed that differs by more is another speed.
SPEED_SHARE = 0.01


class Aspect(StrEnum):
    """What can change."""

    PROMISE = "promise"
    LOSS = "loss"
    DAMAGE = "damage"
    EXPOSURE = "exposure"
    SPEED = "speed"
    CONTROL = "control"
    ANSWER = "answer"


@dataclass(frozen=True)
class Change:
    """One change. `subject` is a scenario as named in the baseline, or a group for a control."""

    subject: str
    aspect: Aspect
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.aspect}: {self.text}"


@dataclass(frozen=True)
class Changes:
    """All changes of a run."""

    worse: tuple[Change, ...] = ()
    unanswered: tuple[Change, ...] = ()
    better: tuple[Change, ...] = ()
    # Scenarios without an entry that are not broken, and entries of scenarios that the run did not measure.
    new: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    # Scenarios whose figures were not compared.
    uncompared: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 1 if anything got worse, 3 if anything has no answer, otherwise 0."""
        return 1 if self.worse else 3 if self.unanswered else 0


def changes(
    baseline: Baseline,
    summary: Summary,
    profile: str,
    failures: Mapping[str, str],
    *,
    is_asked: Callable[[str], bool] = lambda _: False,
    name_of: Callable[[Row], str] = key_of,
) -> Changes:
    """Compare a run, measured with a profile, with a baseline; `failures` says what was not measured, and why.

    `is_asked` says of the name of an entry whether the run was asked for it.
    """
    rows = {name_of(row): row for row in summary.rows if not row.is_sabotaged}
    worse: list[Change] = []
    unanswered = [Change(name, Aspect.ANSWER, f"not measured: {why}") for name, why in sorted(failures.items())]
    better: list[Change] = []
    for name, row in rows.items():
        if row.judgement.result is Result.INCONCLUSIVE:
            unanswered.append(Change(name, Aspect.ANSWER, f"inconclusive: {'; '.join(row.judgement.doubts)}"))
            continue
        old = baseline.entries.get(name)
        unanswered += [Change(name, Aspect.ANSWER, text) for text in _open_questions(old, row)]
        for is_worse, change in _of_scenario(name, old, row, profile):
            (worse if is_worse else better).append(change)
    worse += _silent(baseline, summary)
    unanswered += _former_controls(baseline, summary)
    known = rows.keys() | failures.keys()
    absent = sorted(baseline.entries.keys() - known)
    lacking = [name for name in absent if baseline.entries[name].evidence.profile == profile and is_asked(name)]
    unanswered += [Change(name, Aspect.ANSWER, "in the baseline, and this run did not measure it") for name in lacking]
    if not known & baseline.entries.keys() and (baseline.entries or not rows):
        unanswered.append(Change("the baseline", Aspect.ANSWER, "none of its scenarios was measured"))
    return Changes(
        tuple(worse),
        tuple(unanswered),
        tuple(better),
        tuple(name for name in rows if name not in baseline.entries),
        tuple(name for name in absent if name not in lacking),
        tuple(name for name, row in rows.items() if _is_uncompared(baseline.entries.get(name), row, profile)),
    )


def _open_questions(old: Entry | None, row: Row) -> Iterator[str]:
    """Yield what the baseline has no word for: a promise that is not judged any more, and a new kind of break."""
    if old and old.result == Result.KEPT and row.judgement.result is Result.NOT_JUDGED:
        yield f"{row.judgement.reasons[0]}; the baseline has {old.result}"
    damaged = [verdict for verdict in row.judgement.broken_by if verdict.kind.is_damage]
    if old and old.result == Result.BROKEN and damaged and not old.damaged.value:
        yield f"{len(damaged)} states are damaged, for example {damaged[0].state}; the baseline has losses alone"


def _is_uncompared(old: Entry | None, row: Row, profile: str) -> bool:
    has_answer = row.judgement.result is not Result.INCONCLUSIVE
    return old is not None and has_answer and not old.evidence.is_as_long_as(evidence_of(row, profile))


def _of_scenario(name: str, old: Entry | None, row: Row, profile: str) -> Iterator[tuple[bool, Change]]:
    """Yield each change of a scenario that has an answer, and whether it is for the worse."""
    result = row.judgement.result
    if result is Result.BROKEN and (old is None or old.result != Result.BROKEN):
        was = f"the baseline has {old.result}" if old else "the baseline has no entry for it"
        yield True, Change(name, Aspect.PROMISE, f"broken; {was}; {row.judgement.reasons[0]}")
    if old is None:
        return
    if old.result == Result.BROKEN and result is not Result.BROKEN:
        yield False, Change(name, Aspect.PROMISE, f"{result.value}; the baseline has {old.result}")
    new = entry_of(row, profile)
    if old.evidence.is_as_long_as(new.evidence):
        if old.evidence.seed != new.evidence.seed:
            usual = entry_of(_without_rare_losses(old, row), profile)
            new = replace(new, lost_max=usual.lost_max, lost_mean=usual.lost_mean)
        for is_worse, aspect, text in _of_figures(old, new):
            yield is_worse, Change(name, aspect, text)


def _without_rare_losses(old: Entry, row: Row) -> Row:
    """Return a scenario without the states that lose more than the span, if chance alone may have kept them unseen.

    States with the same content and the same acknowledged transactions count once.
    """
    measured, span = row.outcome.measured, old.lost_max
    usual = tuple(verdict for verdict in measured.verdicts if not (span and span.is_above(loss_of(verdict) or 0)))
    every, common = ({(each.exposure, each.acked) for each in verdicts} for verdicts in (measured.verdicts, usual))
    rare_count = len(every - common)
    if not (usual and rare_count and spans.is_chance(rare_count, len(every), old.evidence.states)):
        return row
    return replace(row, outcome=outcome(replace(measured, verdicts=usual)))


def _of_figures(old: Entry, new: Entry) -> Iterator[tuple[bool, Aspect, str]]:
    is_same = old.evidence.recording == new.evidence.recording
    for what, aspect, shown, before, after in (
        ("lost by the worst state", Aspect.LOSS, _count, old.lost_max, new.lost_max),
        ("lost on average", Aspect.LOSS, _figure, old.lost_mean, new.lost_mean),
        ("share of damaged states", Aspect.DAMAGE, _figure, old.damaged, new.damaged),
    ):
        if before is None or after is None:
            continue
        span = FigureSpan(before.value, before.value, before.value) if is_same else before
        if span.is_above(after.value) or span.is_below(after.value):
            yield span.is_above(after.value), aspect, f"{what}: {_both(shown, span, after)}"
    if old.exposure.is_below(new.exposure.value):
        yield True, Aspect.EXPOSURE, f"distinct file contents: {_both(_count, old.exposure, new.exposure)}"
    if old.per_virtual_s and new.per_virtual_s:
        if old.evidence.seed == new.evidence.seed:
            exact = old.per_virtual_s.value
            span = FigureSpan(exact, exact * (1 - SPEED_SHARE), exact * (1 + SPEED_SHARE))
        else:
            span = spans.widen(old.per_virtual_s, new.per_virtual_s)
        if span.is_above(new.per_virtual_s.value) or span.is_below(new.per_virtual_s.value):
            text = f"transactions per virtual second: {_both(_figure, span, new.per_virtual_s)}"
            yield span.is_below(new.per_virtual_s.value), Aspect.SPEED, text


def _silent(baseline: Baseline, summary: Summary) -> Iterator[Change]:
    """Yield each control that fired once and is silent now; one that was not run makes its scenarios inconclusive."""
    for control in summary.controls:
        if control.fired is False and control.name in baseline.controls.get(str(control.group), ()):
            yield Change(str(control.group), Aspect.CONTROL, f"{control.name} {control.word}: {control.what}")


def _former_controls(baseline: Baseline, summary: Summary) -> Iterator[Change]:
    """Yield each control that fired once and that nobody looks at any more, though its group was measured."""
    known = {(str(control.group), control.name) for control in summary.controls}
    for group in sorted({str(group_of(row.outcome.scenario)) for row in summary.rows}):
        for name in baseline.controls.get(group, ()):
            if (group, name) not in known:
                yield Change(group, Aspect.CONTROL, f"{name} fired in the baseline, and is no control any more")


def _both(shown: Callable[[float], str], old: FigureSpan, new: FigureSpan) -> str:
    """Return text such as `19, recorded 10 (up to 12)`."""
    if old.low is not None and old.high is not None:
        bounds = f" ({shown(old.low)} to {shown(old.high)})" if old.low != old.high else ""
    else:
        bounds = f" (up to {shown(old.high)})" if old.high is not None else ""
        bounds = f" (at least {shown(old.low)})" if old.low is not None else bounds
    return f"{shown(new.value)}, recorded {shown(old.value)}{bounds}"


def _count(value: float) -> str:
    return f"{value:.0f}"


def _figure(value: float) -> str:
    return f"{value:.4g}"
