"""Which syncs matter, found by leaving them out one by one, next to what the documentation says about each.

A mutant is a scenario whose shim drops one kind of sync. It is noticed if a state breaks the promise of its settings,
by more loss or more damage than is allowed. The score of a setting is noticed / mattering. A mutant that should matter
and is not noticed points to a gap, either in the states checked or in the expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rig.analysis.dossiers import Expectation, dossier_of
from rig.analysis.judging.outcome import Row, Summary
from rig.contract.orders import DROP_PREFIX
from rig.contract.scenario import Scenario, name_of


def expectation(scenario: Scenario) -> Expectation | None:
    """Return what is known about the sync that a mutant leaves out, or None."""
    kind = scenario.shim.removeprefix(DROP_PREFIX)
    return dossier_of(scenario.engine).expectation(scenario.filesystem, scenario.all_settings, kind)


@dataclass(frozen=True)
class Mutant:
    """One sync left out of one setting, under every fault that was tried."""

    kind: str
    scenarios: tuple[str, ...]
    # None if a scenario is inconclusive and no other breaks the promise.
    noticed: bool | None
    expectation: Expectation | None

    @property
    def matters(self) -> bool:
        """Whether this mutant counts for the score; a mutant without an expectation does."""
        return self.expectation is None or self.expectation.matters

    @property
    def text(self) -> str:
        """Return the result and its reason in a few words."""
        if self.noticed:
            return "noticed" if self.matters else "noticed, though not expected"
        if self.noticed is None:
            return "inconclusive"
        return f"survives: {self.expectation.reason}" if self.expectation and not self.matters else "survives: unknown"


@dataclass(frozen=True)
class Score:
    """The mutants of one setting."""

    name: str
    mutants: tuple[Mutant, ...]

    @property
    def mattering(self) -> tuple[Mutant, ...]:
        """Return the mutants that should be noticed."""
        return tuple(mutant for mutant in self.mutants if mutant.matters)

    @property
    def text(self) -> str:
        """Return the score as text, for example `3 / 3`."""
        return f"{sum(mutant.noticed is True for mutant in self.mattering)} / {len(self.mattering)}"


def scores(summary: Summary) -> tuple[Score, ...]:
    """Return the score of every setting that had mutants, in the order of the rows."""
    mutant_scores = []
    rows = [row for row in summary.rows if row.outcome.scenario.shim.startswith(DROP_PREFIX)]
    for name, own in groupby(rows, key=_name):
        same = list(own)
        kinds = dict.fromkeys(row.outcome.scenario.shim.removeprefix(DROP_PREFIX) for row in same)
        mutant_scores.append(Score(name, tuple(_mutant(kind, same) for kind in kinds)))
    return tuple(mutant_scores)


def lines(summary: Summary) -> list[str]:
    """Return the section of the text table: a line for each setting, and for each mutant that needs attention.

    These are the mutants that were not noticed, and mutants that were noticed although they should not matter.
    """
    text_lines = []
    for score in scores(summary):
        text_lines.append(f"left out of {score.name}: {score.text} syncs that matter were noticed")
        text_lines += [
            f"  {mutant.kind} {mutant.text}"
            for mutant in score.mutants
            if mutant.noticed is not True or not mutant.matters
        ]
    return text_lines


def _mutant(kind: str, rows: Sequence[Row]) -> Mutant:
    own = [row for row in rows if row.outcome.scenario.shim == f"{DROP_PREFIX}{kind}"]
    results = {row.judgement.result.value for row in own}
    noticed = True if "broken" in results else False if results == {"kept"} else None
    scenarios = tuple(row.outcome.scenario.id for row in own)
    return Mutant(kind, scenarios, noticed, expectation(own[0].outcome.scenario))


def _name(row: Row) -> str:
    scenario = row.outcome.scenario
    return f"{scenario.engine} {name_of(scenario.settings, tuned=scenario.tuned)} on {scenario.filesystem}"
