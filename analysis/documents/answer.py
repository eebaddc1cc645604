"""The answer to a claim: its verdict, what was measured, and what is true instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from rig.analysis.documents.claim import Claim, ClaimVerdict
from rig.analysis.documents.condition import Condition, Figure, Figures, all_hold


@dataclass(frozen=True)
class Answer:
    """What measuring a claim showed; `why` is set if it is not measured, `truth` if it is not simply confirmed."""

    claim: Claim
    verdict: ClaimVerdict
    seen: str = ""
    truth: str = ""
    why: str = ""
    # Commands that show the states on which the verdict rests.
    replays: tuple[str, ...] = ()
    figures: Figures = field(default_factory=dict)


def not_measured(claim: Claim, why: str, figures: Mapping[str, Figure | None] | None = None) -> Answer:
    """Return that a claim is not measured, and why."""
    return Answer(claim, ClaimVerdict.NOT_MEASURED, why=why, figures=figures or {})


def decide(claim: Claim, figures: Figures) -> Answer:
    """Compare figures with thresholds; if the control did not fire or no threshold fits, the claim is not measured."""
    try:
        silent = [condition.text for condition in claim.fires if not condition.holds(figures)]
        if silent:
            return not_measured(
                claim, f"its control did not fire ({claim.control}): {_values(claim.fires, figures)}", figures
            )
        verdict = _verdict(claim, figures)
        if verdict is None:
            thresholds = (*claim.confirm, *claim.refute, *claim.imprecise)
            return not_measured(claim, f"no threshold fits: {_values(thresholds, figures)}", figures)
        seen, truth = fill(claim.seen, figures), fill(claim.truth, figures)
    except KeyError as error:
        return not_measured(claim, f"the figure {error.args[0]} is missing", figures)
    return Answer(claim, verdict, seen, "" if verdict is ClaimVerdict.CONFIRMED else truth, figures=figures)


def fill(text: str, figures: Figures) -> str:
    """Return a sentence with its figures; raise KeyError for one that is missing."""
    return _Filler().vformat(text, (), figures)


def figure_text(value: Any) -> str:
    """Return a figure as people write it: 1,234 or 0.12, yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


class _Filler(Formatter):
    """Takes `wal.lost_max` as one name, and shows figures as people write them."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:  # noqa: ARG002 - as inherited
        if kwargs.get(field_name) is None:
            raise KeyError(field_name)
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value, format_spec) if format_spec else figure_text(value)


def _verdict(claim: Claim, figures: Figures) -> ClaimVerdict | None:
    for verdict, conditions in claim.thresholds:
        if all_hold(conditions, figures):
            return verdict
    return None


def _values(conditions: tuple[Condition, ...], figures: Figures) -> str:
    names = dict.fromkeys(name for condition in conditions for name in condition.names)
    return ", ".join(f"{name} is {figure_text(figures.get(name))}" for name in names)
