"""A run as test cases: one for each scenario, and one for each thing that kept a scenario from being measured.

A case passes if the promise was kept, or if a sabotaged scenario broke its promise, as it must. It fails if a promise
was broken. It has no answer, which is never green, if the scenario is inconclusive or was not measured. It is skipped
if nothing was promised, or if a mutant survived: that does not decide the answer of the run either.

With a baseline only what got worse fails: a scenario, or a control that went silent, which is a case of its own. A
promise that the baseline records as broken is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rig.analysis.history.baseline import key_of
from rig.analysis.history.changes import Aspect, Changes
from rig.analysis.history.figures import Figures, figures
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.analysis.show.table import explanation, worst_lines


class CaseEnd(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNANSWERED = "no answer"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Case:
    """One test case; `group` is the class name in JUnit XML."""

    name: str
    group: str
    answer: CaseEnd
    # One line; empty for a case that passed.
    reason: str = ""
    # What the table says below it: reasons, and a command to replay each of the worst states.
    lines: tuple[str, ...] = ()
    figures: Figures | None = None
    # How often it was measured again because it could not be measured.
    retry_count: int = 0


def cases(
    summary: Summary, failures: Mapping[str, str], damaged: Sequence[str], changes: Changes | None = None
) -> list[Case]:
    """Return a case for each scenario, for each one without an answer (with why), and for each damaged file.

    `changes` are those since the baseline, if there is one.
    """
    measured = [_case(row) if changes is None else _since(changes, row) for row in summary.rows]
    silent = [
        Case(f"controls of {change.subject}", "controls", CaseEnd.FAILED, _line(str(change)), (str(change),))
        for change in (changes.worse if changes else ())
        if change.aspect is Aspect.CONTROL
    ]
    missing = [
        Case(name, "not measured", CaseEnd.UNANSWERED, f"not measured: {_line(why)}", (why,))
        for name, why in sorted(failures.items())
    ]
    broken_files = [
        Case(f"damaged file {number}", "damaged", CaseEnd.UNANSWERED, f"damaged: {_line(text)}", (text,))
        for number, text in enumerate(damaged, 1)
    ]
    known = {key_of(row) for row in summary.rows} | failures.keys()
    unanswered = [
        Case(change.subject, "baseline", CaseEnd.UNANSWERED, _line(change.text), (str(change),))
        for change in (changes.unanswered if changes else ())
        if change.subject not in known
    ]
    return [*measured, *silent, *missing, *unanswered, *broken_files]


def _case(row: Row) -> Case:
    scenario = row.outcome.scenario
    answer = _answer(row)
    reason = "" if answer is CaseEnd.PASSED else _line(f"{row.result_text}: {'; '.join(row.judgement.reasons)}")
    lines = () if row.is_sabotaged else tuple(explanation(row))
    group = f"{scenario.engine}.{scenario.filesystem}.{scenario.fault}"
    return Case(scenario.id, group, answer, reason, lines, figures(row))


def _since(changes: Changes, row: Row) -> Case:
    """Return the case of a scenario that is held against a baseline."""
    case, name = _case(row), key_of(row)
    if row.is_sabotaged:
        return case
    worse = [change for change in changes.worse if change.subject == name]
    if worse:
        reason = "; ".join(f"{change.aspect}: {change.text}" for change in worse)
        # A loss that breaks no promise has no lines in the table.
        lines = case.lines or (f"worse {name}: {reason}", *worst_lines(row))
        return replace(case, answer=CaseEnd.FAILED, reason=_line(f"worse: {reason}"), lines=lines)
    if texts := [change.text for change in changes.unanswered if change.subject == name]:
        return replace(case, answer=CaseEnd.UNANSWERED, reason=_line("; ".join(texts)))
    if case.answer is CaseEnd.FAILED:
        return replace(case, answer=CaseEnd.SKIPPED, reason=_line(f"as the baseline records: {case.reason}"))
    return case


def _answer(row: Row) -> CaseEnd:
    result = row.judgement.result
    if row.is_sabotaged:
        return CaseEnd.PASSED if result is Result.BROKEN else CaseEnd.SKIPPED
    return {
        Result.KEPT: CaseEnd.PASSED,
        Result.BROKEN: CaseEnd.FAILED,
        Result.INCONCLUSIVE: CaseEnd.UNANSWERED,
        Result.NOT_JUDGED: CaseEnd.SKIPPED,
    }[result]


def _line(text: str) -> str:
    return " ".join(text.split())
