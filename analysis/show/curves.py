"""A curve as SVG text: how a loss depends on one thing that was varied, with its intervals.

The values stand one step apart in the given order: 10 and 1000 pages are labels, not distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rig.analysis.judging.randomcut import Estimate
from rig.analysis.show.pictures import CALM, DAMAGE, FAINT, INK, PAPER, draw_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vPX*"
# Curves are shifted by this share of a step, so that their intervals do not cover each other.
_APART = 0.07


@dataclass(frozen=True)
class Curve:
    """One line of a picture: an estimate for each value, or None where it is missing."""

    name: str
    estimates: Sequence[Estimate | None]


def curves(
    lines: Sequence[Curve],
    values: Sequence[str],
    titles: tuple[str, str],
    picture_id: str,
    description: str,
    *,
    is_share: bool = False,
) -> str:
    """Return an SVG element with the values to the right and the estimates upwards; `titles` name the two axes."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, line in enumerate(lines):
            _draw_line(axes, line, number, (number - (len(lines) - 1) / 2) * _APART)
        _draw_axes(axes, values, titles, is_share=is_share)
        if len(lines) > 1:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", frameon=False, ncols=3)

    return draw_svg(draw, (10.4, 3.6), picture_id, description)


def _draw_line(axes: Axes, line: Curve, number: int, shift: float) -> None:
    known = [(place + shift, estimate) for place, estimate in enumerate(line.estimates) if estimate]
    colour = (CALM, DAMAGE, INK)[number % 3]
    for place, estimate in known:
        if estimate.low is not None and estimate.high is not None:
            axes.plot([place, place], [estimate.low, estimate.high], color=colour, linewidth=2, alpha=0.6)
    marker = _MARKERS[number % len(_MARKERS)]
    axes.plot(
        [place for place, _ in known], [estimate.value for _, estimate in known],
        color=colour, marker=marker, markersize=8, markeredgecolor=PAPER, linewidth=1,
        linestyle=(0, (2, 3)), label=line.name, zorder=3,
    )  # fmt: skip


def _draw_axes(axes: Axes, values: Sequence[str], titles: tuple[str, str], *, is_share: bool) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xticks(range(len(values)), values)
    axes.set_xlabel(titles[0])
    axes.set_ylabel(titles[1])
    axes.set_ylim(bottom=0)
    if is_share:
        axes.set_ylim(0, 1.04)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.grid(visible=True, axis="y", color=FAINT, linewidth=0.6, alpha=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
