"""Changes in words, for the terminal: one line each, what got worse first."""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.history.changes import Change, Changes

# Names of scenarios without an entry, or without a measurement, that a line lists.
_NAMES_MAX = 5


def lines(changes: Changes) -> list[tuple[str, str]]:
    """Return each line with the style in which a terminal shows it, and the answer as the last line."""
    styled_lines = [
        *_style_lines("worse", "bold red", changes.worse),
        *_style_lines("no answer", "yellow", changes.unanswered),
        *_style_lines("better", "green", changes.better),
    ]
    for what, names in (
        ("new, without an entry", changes.new),
        ("in the baseline, not in this run", changes.absent),
        ("figures not compared, because the profile or the number of transactions differs", changes.uncompared),
    ):
        if names:
            styled_lines.append(("", f"{what}: {_names_text(names)}"))
    return [*styled_lines, (_answer_style(changes), answer(changes))]


def answer(changes: Changes) -> str:
    """Return one sentence."""
    counts = [
        f"{len(some)} {what}"
        for some, what in (
            (changes.worse, "worse"),
            (changes.unanswered, "without an answer"),
            (changes.better, "better"),
        )
        if some
    ]
    head = "Worse than the baseline" if changes.worse else "No answer" if changes.unanswered else "Nothing got worse"
    return f"{head}: {', '.join(counts)}." if counts else f"{head}."


def _answer_style(changes: Changes) -> str:
    return "bold red" if changes.worse else "yellow" if changes.unanswered else "green"


def _style_lines(word: str, style: str, changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(style, f"{word}: {change}") for change in changes]


def _names_text(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f", and {more} more" if more > 0 else "")
