"""Two runs side by side as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rig.analysis.history.changetext import answer, lines
from rig.analysis.history.comparison import ComparedRun, RunComparison, ScenarioPair
from rig.analysis.history.figures import Figures
from rig.analysis.show.table import number, replay_line
from rig.contract.results import Verdict

if TYPE_CHECKING:
    from rich.table import Table

HEAD = ("scenario", "result", "lost max", "file contents", "tx/s", "rests on")
_SAME = "="


def table(comparison: RunComparison) -> Table:
    """Return a line for each scenario, for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title=_title(comparison), title_justify="left")
    for name in HEAD:
        made.add_column(name, overflow="fold")
    for pair in comparison.pairs:
        made.add_row(*map(Text, _row(pair)))
    return made


def notes(comparison: RunComparison) -> list[tuple[str, str]]:
    """Return the lines below the table, each with its style: what differs, states to replay, changes, the answer."""
    styled_lines = [("", f"{what}: {old} before, {new} after") for what, old, new in comparison.common]
    for pair in comparison.pairs:
        styled_lines += [("", line) for line in _states(pair, comparison.before, comparison.after)]
        styled_lines += [("", f"{pair.name}: {what}: {old} before, {new} after") for what, old, new in pair.evidence]
    return styled_lines + lines(comparison.changes)


def markdown(comparison: RunComparison) -> str:
    """Return the comparison as a table and lists in Markdown."""
    from rig.analysis.show.ci.stepsummary import escape_markdown

    rows = [f"| {' | '.join(map(escape_markdown, _row(pair)))} |" for pair in comparison.pairs]
    listed = [f"- {escape_markdown(line)}" for _, line in notes(comparison)[:-1]]
    head = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"
    parts = (
        f"### {escape_markdown(answer(comparison.changes))}",
        escape_markdown(_title(comparison)),
        "\n".join((head, *rows)),
        "\n".join(listed),
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def as_json(comparison: RunComparison) -> str:
    """Return the comparison as JSON, the same for the same two runs."""
    changes = {
        "worse": comparison.changes.worse,
        "unanswered": comparison.changes.unanswered,
        "better": comparison.changes.better,
    }
    value = {
        "before": comparison.before.name,
        "after": comparison.after.name,
        "answer": answer(comparison.changes),
        **{word: [asdict(change) for change in some] for word, some in changes.items()},
        "differs": _differing(comparison.common),
        "scenarios": {pair.name: _object(pair, comparison) for pair in comparison.pairs},
    }
    return json.dumps(value, indent=1) + "\n"


def _title(comparison: RunComparison) -> str:
    return f"{comparison.before.name} -> {comparison.after.name}"


def _row(pair: ScenarioPair) -> tuple[str, ...]:
    old, new = pair.figures

    def both(name: str) -> str:
        return _arrow(*(_cell(getattr(side, name)) if side else "" for side in (old, new)))

    return (
        pair.name, both("shown"), both("lost_max"), both("file_contents"), both("transactions_per_virtual_s"),
        pair.rests_on,
    )  # fmt: skip


def _cell(value: str | float | None) -> str:
    return value if isinstance(value, str) else number(value)


def _arrow(old: str, new: str) -> str:
    return f"{_SAME} {old}" if old == new else f"{old or 'not run'} -> {new or 'not run'}"


def _states(pair: ScenarioPair, before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """Yield a line for each state that was judged differently, or that is new where the recording is the same."""
    if not (pair.before and pair.after):
        return
    scenario_id = pair.after.outcome.scenario.id
    for state in pair.turned[:3]:
        line = replay_line(scenario_id, state.after, after.run_dir)
        yield f"{pair.name}: {_verdict_text(state.before)} before, {_verdict_text(state.after)} after: {line}"
    for verdict in pair.fresh if pair.is_same_recording else ():
        line = replay_line(scenario_id, verdict, before.run_dir)
        what = f"{_verdict_text(verdict)} after, not tried before"
        yield f"{pair.name}: {what}; to judge the state in the first run: {line}"


def _verdict_text(verdict: Verdict) -> str:
    return f"{verdict.kind.value}, lost {verdict.lost}"


def _object(pair: ScenarioPair, comparison: RunComparison) -> dict[str, object]:
    old, new = pair.figures
    return {
        "before": _figures(old),
        "after": _figures(new),
        "rests_on": pair.rests_on,
        "differs": _differing(pair.evidence),
        "states": list(_states(pair, comparison.before, comparison.after)),
    }


def _figures(figures: Figures | None) -> dict[str, object] | None:
    return asdict(figures) if figures else None


def _differing(evidence: tuple[tuple[str, str, str], ...]) -> dict[str, list[str]]:
    return {what: [old, new] for what, old, new in evidence}
