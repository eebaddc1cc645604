"""The report of the claims: one self-contained HTML file with a page for each document.

The same answers give the same bytes. Like the report of a run it fetches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rig.analysis.documents.across import ROWS, AcrossSeen, across
from rig.analysis.documents.answer import figure_text
from rig.analysis.documents.claim import ClaimVerdict
from rig.analysis.documents.measuring import Answered
from rig.analysis.documents.table import headline, summary
from rig.analysis.judging.speed import FigureComparison, figure_comparisons, sentences
from rig.analysis.show import pages
from rig.speed.speeds import Speeds

_CLASSES = {
    ClaimVerdict.CONFIRMED: "confirmed",
    ClaimVerdict.IMPRECISE: "imprecise",
    ClaimVerdict.REFUTED: "refuted",
    ClaimVerdict.NOT_MEASURED: "unmeasured",
}


def write_page(
    answered: Sequence[Answered], speeds: Sequence[Speeds], facts: Sequence[tuple[str, str]], out: Path
) -> None:
    """Write the report to `out`, durably or not at all; `facts` say what it rests on."""
    pages.write(page_html(answered, speeds, facts), out)


def page_html(answered: Sequence[Answered], speeds: Sequence[Speeds], facts: Sequence[tuple[str, str]]) -> str:
    """Return the whole report as text. Where we measured a document's own ratios, it shows both."""
    answers = [answer for document in answered for answer in document.answers]
    values = {
        "headline": headline(answers),
        "documents": [(document, summary(document), headline(document.answers)) for document in answered],
        "classes": _CLASSES,
        "measured": _by_document(speeds),
        "across": _across(speeds),
        "shown": figure_text,
        "facts": list(facts),
    }
    return pages.render("claims.html.j2", values, styles=(pages.STYLE, "claims.css"))


def _across(speeds: Sequence[Speeds]) -> dict[str, list[AcrossSeen]]:
    """Return the rows of each document about two file systems, compared with the last measurements on each."""
    last = {
        (measurement.experiment, measurement.virtual["filesystem"], measurement.virtual["device"]): measurement
        for measurement in speeds
        if measurement.virtual
    }
    of = {
        name: [measurement for (experiment, *_), measurement in last.items() if experiment == name] for name, *_ in last
    }
    return {name: across(rows, of.get(name, [])) for name, rows in ROWS.items()}


def _by_document(speeds: Sequence[Speeds]) -> dict[str, list[tuple[Speeds, list[FigureComparison], list[str]]]]:
    """Return the last measurement of each document on each file system, on real disks and in virtual machines."""
    last = {
        (measurement.experiment, bool(measurement.virtual), measurement.filesystem): measurement
        for measurement in speeds
        if measurement.figures
    }
    by_name: dict[str, list[tuple[Speeds, list[FigureComparison], list[str]]]] = {}
    for (name, *_), measurement in sorted(last.items()):
        by_name.setdefault(name, []).append((measurement, figure_comparisons(measurement), sentences(measurement)))
    return by_name
