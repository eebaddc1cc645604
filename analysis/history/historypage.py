"""The history as a page: a line for each scenario with a small curve of its loss, its speed and its exposure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.analysis.history.trends import HEAD, Trend, cells
from rig.analysis.show.pages import render

_WIDTH, _HEIGHT = 90, 24
_MARGIN = 2


def page_html(trends: Sequence[Trend], facts: Mapping[str, str]) -> str:
    """Return the page as text; `facts` are shown as they are."""
    lines = [(trend, cells(trend), _curves(trend)) for trend in trends]
    return render(
        "history.html.j2", {"lines": lines, "head": HEAD[1:], "facts": facts, "width": _WIDTH, "height": _HEIGHT}
    )


def _curves(trend: Trend) -> list[tuple[str, str, list[str]]]:
    """Return each figure with a curve: its name, the last value, and the curve."""
    points = {"lost max": trend.losses, "file contents": trend.exposures, "tx/s": trend.speeds}
    last_values = cells(trend)[3:6]
    return [(name, last, spark(points[name])) for name, last in zip(points, last_values, strict=True)]


def spark(points: Sequence[float | None]) -> list[str]:
    """Return the points of each unbroken stretch of a small curve, as SVG writes them; the value 0 is at the bottom."""
    known = [point for point in points if point is not None]
    top = max([*known, 0]) or 1
    step = (_WIDTH - 2 * _MARGIN) / max(len(points) - 1, 1)
    stretches: list[list[str]] = [[]]
    for place, point in enumerate(points):
        if point is None:
            stretches.append([])
            continue
        height = (_HEIGHT - 2 * _MARGIN) * point / top
        stretches[-1].append(f"{_MARGIN + place * step:.1f},{_HEIGHT - _MARGIN - height:.1f}")
    # A stretch of one point needs a second trend to be seen.
    return [" ".join(stretch if len(stretch) > 1 else stretch * 2) for stretch in stretches if stretch]
