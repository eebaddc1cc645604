"""What broke in a run: for the first screen of the report, and for ten lines of a terminal or a failing test.

A break is one kind of verdict with which a scenario broke its promise. The worst break leads; one with an explanation
goes before the others, which are a line each. A promise that a shim broke on purpose is no break.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rig.analysis.explain.story import Telling, meaning
from rig.analysis.judging.metrics import loss_of, worst_first
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.analysis.show.table import replay_line, share
from rig.contract.results import Verdict, VerdictKind

_WIDTH_MAX, _PARAGRAPH_LINES_MAX = 110, 6


@dataclass(frozen=True)
class Break:
    """One kind of verdict with which a scenario broke its promise; `verdicts` are all of them, the worst first."""

    row: Row
    kind: VerdictKind
    verdicts: tuple[Verdict, ...]
    # What came of explaining one of them; None if nobody tried.
    telling: Telling | None = None

    @property
    def title(self) -> str:
        """Return the settings, the file system and the fault."""
        scenario = self.row.outcome.scenario
        return f"{scenario.engine} {scenario.settings_name} on {scenario.filesystem} under {scenario.fault}"

    @property
    def worst(self) -> Verdict:
        """Return the verdict that is explained, or else the worst."""
        state = self.telling.state if self.telling else ""
        return next((verdict for verdict in self.verdicts if verdict.state == state), self.verdicts[0])

    @property
    def extent(self) -> str:
        """Return what was seen, and in how many file contents."""
        outcome = self.row.outcome
        if all(verdict.files or verdict.kind.is_damage for verdict in self.verdicts):
            count, total, things = len({v.exposure for v in self.verdicts}), outcome.exposure_count, "file contents"
        else:
            count, total, things = len(self.verdicts), outcome.database_count, "states"
        most = max(loss_of(verdict) or 0 for verdict in self.verdicts)
        lost = f", up to {most} acknowledged {'transactions' if most > 1 else 'transaction'} lost" if most else ""
        what = meaning(self.kind)
        return f"{what[0].upper()}{what[1:]} ({self.kind}) in {count} of {total} {things}{lost}"

    @property
    def instants(self) -> str:
        """Return when the power went in the states that show it."""
        counts = sorted({verdict.acked for verdict in self.verdicts})
        span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
        text = f"The power had gone after {span} acknowledged transaction{'s' if counts[-1] != 1 else ''}"
        all_ns = sum(verdict.instant_weight_ns for verdict in self.row.outcome.measured.verdicts)
        if own_ns := sum(verdict.instant_weight_ns for verdict in self.verdicts):
            return f"{text}; {share(own_ns / all_ns)} of the cuts at a random instant show it"
        return text

    @property
    def replay_line(self) -> str:
        """Return the command that shows the worst state again."""
        return replay_line(self.row.outcome.scenario.id, self.worst, self.row.run_dir)

    @property
    def explain_line(self) -> str:
        """Return the command that explains the worst state."""
        place = ["--run-dir", self.row.run_dir] if self.row.run_dir else []
        return shlex.join(["rig", "explain", self.row.outcome.scenario.id, self.worst.state, *place])


def breaks(summary: Summary, tellings: Mapping[str, Telling] | None = None) -> list[Break]:
    """Return the breaks of a run, first those with an explanation, then the worst; `tellings` are by scenario."""
    broken: list[Break] = []
    for row in summary.rows:
        if row.judgement.result is not Result.BROKEN or row.is_sabotaged:
            continue
        by_kind: dict[VerdictKind, list[Verdict]] = {}
        for verdict in row.judgement.broken_by:
            by_kind.setdefault(verdict.kind, []).append(verdict)
        telling = (tellings or {}).get(row.outcome.scenario.id)
        for kind, verdicts in by_kind.items():
            is_told = telling is not None and any(verdict.state == telling.state for verdict in verdicts)
            broken.append(Break(row, kind, worst_first(verdicts), telling if is_told else None))
    rank = {verdict: rank for rank, verdict in enumerate(worst_first(each.worst for each in broken))}
    return sorted(broken, key=lambda each: (not (each.telling and each.telling.story), rank[each.worst]))


def lines(every_break: Sequence[Break], width: int = _WIDTH_MAX) -> list[str]:
    """Return what broke first, and why, in at most ten lines of text."""
    if not every_break:
        return []
    first, others = every_break[0], every_break[1:]
    parts = [f"WHAT BROKE: {first.title}: {first.extent}", f"{first.instants}."]
    conclusion = ""
    if first.telling and (story := first.telling.story):
        paragraph, conclusion = story.paragraph, story.conclusion
    elif first.telling:
        paragraph = f"Not explained: {first.telling.failure}"
    else:
        paragraph = f"To say why: {first.explain_line}"
    parts += _paragraph_lines(paragraph, conclusion, min(width, _WIDTH_MAX))
    parts.append(first.replay_line)
    if others:
        kinds = ", ".join(dict.fromkeys(f"{each.kind} of {each.row.outcome.settings_name}" for each in others[:3]))
        parts.append(
            f"and {len(others)} more: {kinds}{', ...' if len(others) > len(others[:3]) else ''}; see the report"
        )
    return parts


def _paragraph_lines(paragraph: str, conclusion: str, width: int) -> Iterable[str]:
    """Return the paragraph in a few lines of text; if it is too long, its middle is left out."""
    whole, end = _text_lines(paragraph, width), _text_lines(conclusion, width, _PARAGRAPH_LINES_MAX // 2)
    if len(whole) <= _PARAGRAPH_LINES_MAX:
        return whole
    return [*_text_lines(paragraph.removesuffix(conclusion), width, _PARAGRAPH_LINES_MAX - len(end)), *end]


def _text_lines(text: str, width: int, lines_max: int | None = None) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent="  ", max_lines=lines_max,
        placeholder=" ... (the report has the rest)", break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
