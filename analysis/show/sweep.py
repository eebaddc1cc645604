"""How the loss at a random instant depends on one varied thing: a table, and a page with a curve for each question.

Each value was measured in a run of its own, which was judged with its own controls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rig.analysis.advice.advicetext import TOO_SHORT, estimate, percent
from rig.analysis.judging.outcome import Row, Summary
from rig.analysis.judging.randomcut import Estimate, RandomCut, random_cut
from rig.analysis.show.curves import Curve, curves
from rig.analysis.show.pages import render
from rig.analysis.show.table import number, share
from rig.contract.orders import Shim

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class SweepPoint:
    """One scenario at one value."""

    value: str
    # The id without the varied part.
    name: str
    row: Row
    cut: RandomCut


@dataclass(frozen=True)
class Sweep:
    """What was measured over all values."""

    # What is varied, as it is typed.
    over: str
    values: Sequence[str]
    steps: Sequence[SweepPoint]

    @property
    def names(self) -> list[str]:
        """Return the names of the curves."""
        return list(dict.fromkeys(step.name for step in self.steps))

    def at(self, name: str, value: str) -> SweepPoint | None:
        """Return a scenario at a value."""
        return next((step for step in self.steps if (step.name, step.value) == (name, value)), None)


def steps(value: str, summary: Summary, name_of: Callable[[Row], str]) -> list[SweepPoint]:
    """Return the scenarios of one run that have a loss at a random instant, except scenarios under a shim."""
    rows = [row for row in summary.rows if row.outcome.scenario.shim == Shim.NONE]
    return [SweepPoint(value, name_of(row), row, cut) for row in rows if (cut := random_cut(row.outcome))]


# The columns that follow the values.
HEADINGS = (
    "tx/s", "loses something", "lost, mean", "lost, max", "oldest, mean s", "oldest, max s", "damaged", "result",
)  # fmt: skip
CAPTION = (
    "At a uniformly random instant of the workload, if all unflushed writes are lost, with 95 % intervals. tx/s: "
    "transactions per virtual second, pauses included. oldest: age of the oldest lost transaction. Numbers and ages "
    "are over the instants at which the database came back whole. Neighbouring instants show the same loss, so an "
    "interval rests on stretches of them; there is none where a recording is too short for two, or every instant lost "
    "the same."
)


def rows(sweep: Sweep, name: str) -> list[list[str]]:
    """Return a row for each value of a curve, below `headings`."""
    return [_row(step) for value in sweep.values if (step := sweep.at(name, value))]


def _row(step: SweepPoint) -> list[str]:
    cut = step.cut
    return [
        step.value, number(cut.pace_per_s), percent(cut.losing), _mean(cut.lost_mean), _most(cut.lost_max),
        _mean(cut.age_mean_s), number(cut.age_max_s), share(cut.damaged_share),
        step.row.result_text,
    ]  # fmt: skip


def _mean(interval: Estimate | None) -> str:
    return estimate(interval) if interval else "-"


def _most(count: int | None) -> str:
    return "-" if count is None else str(count)


def headings(sweep: Sweep) -> list[str]:
    """Return the headings of the table."""
    return [sweep.over, *HEADINGS]


def tables(sweep: Sweep) -> list[Table]:
    """Return a table for each curve, for a terminal, each interval below its figure."""
    from rich import box
    from rich.table import Table

    rendered = []
    for name in sweep.names:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=name, title_justify="left")
        for heading in headings(sweep):
            table.add_column(heading.replace(", ", "\n").replace("_", "_\n"), justify="right", no_wrap=True)
        for row in rows(sweep, name):
            table.add_row(*(cell.replace(TOO_SHORT, "no interval").replace(" (", "\n(") for cell in row))
        rendered.append(table)
    return rendered


def page_html(sweep: Sweep, facts: Mapping[str, str]) -> str:
    """Return the page as text; `facts` are shown as they are."""
    values = {
        "sweep": sweep,
        "headings": headings(sweep),
        "rows": {name: rows(sweep, name) for name in sweep.names},
        "caption": CAPTION,
        "pictures": _pictures(sweep),
        "facts": facts,
    }
    return render("sweep.html.j2", values)


_QUESTIONS: tuple[tuple[str, str, Callable[[RandomCut], Estimate | None], bool], ...] = (
    ("How often something is lost", "cuts that lose something", lambda cut: cut.losing, True),
    ("How much is lost", "transactions lost, mean", lambda cut: cut.lost_mean, False),
    ("How old it is", "age of the oldest, mean, s", lambda cut: cut.age_mean_s, False),
)


def _pictures(sweep: Sweep) -> list[tuple[str, str]]:
    """Return a picture and its caption for each question."""
    pictures = []
    for place, (title, axis, of, is_share) in enumerate(_QUESTIONS):
        lines = [
            Curve(name, [of(step.cut) if (step := sweep.at(name, value)) else None for value in sweep.values])
            for name in sweep.names
        ]
        caption = f"{title}, by {sweep.over}. Lines upwards are 95 % intervals; a point without one has none."
        svg = curves(lines, sweep.values, (sweep.over, axis), f"curve-{place}", caption, is_share=is_share)
        pictures.append((svg, caption))
    return pictures
