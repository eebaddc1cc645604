"""The pictures of the report as SVG text: speed against loss, and the distribution of losses of one scenario.

The same input gives the same bytes: ids come from a fixed salt, and no date is written. Colours are CSS variables of
the page, so one picture serves light and dark mode. Damage is a shape as well as a colour.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rig.analysis.advice.unbeaten import unbeaten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# matplotlib needs real colours; each represents a variable of the page and is replaced in the text.
_COLOURS = {"#010101": "--ink", "#020202": "--faint", "#030303": "--calm", "#040404": "--damage", "#050505": "--paper"}
INK, FAINT, CALM, DAMAGE, PAPER = _COLOURS
# Points with the same loss, and with speeds that differ by less than this share, become one point with several names.
_SAME_SPEED = 0.04
_BARS_MAX = 24
# With fewer settings a picture says no more than the table.
SETTINGS_MIN = 4
# For the captions of pictures with speed and loss.
RING = (
    "A ring: no other setting that keeps its promise is as fast and loses less, or is faster and loses no more. "
    "A setting that breaks its promise has none."
)


@dataclass(frozen=True)
class Point:
    """One setting in a picture: `value` is the loss, in the unit of the picture's axis."""

    name: str
    transactions_per_s: float
    value: float
    is_damaged: bool
    # False for a program under a shim and for a broken promise: nobody would choose it.
    is_choice: bool = True


@dataclass(frozen=True)
class Axis:
    """What the vertical axis shows; a share goes from 0 to 1, a count has no upper limit."""

    title: str
    is_share: bool


def speed_against_loss(points: Sequence[Point], axis: Axis, picture_id: str, description: str) -> str:
    """Return an SVG element with speed to the right and loss upwards; no label lies on a point or on another label.

    A point that no other beats has a ring (`RING`).
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        merged = _merge(points)
        _draw_axes(axes, merged, axis)
        choices = [point for point in merged if point.is_choice]
        ringed = unbeaten(choices, lambda choice: (choice.transactions_per_s, (choice.is_damaged, choice.value)))
        for number, point in enumerate(ringed):
            axes.scatter(
                point.transactions_per_s,
                point.value,
                s=260,
                facecolors="none",
                edgecolors=INK,
                linewidths=1.4,
                zorder=2,
                clip_on=False,
                gid=f"ring-{number}",
            )
        for point in merged:
            marker, colour, size = ("X", DAMAGE, 120) if point.is_damaged else ("o", CALM, 70)
            axes.scatter(
                point.transactions_per_s,
                point.value,
                marker=marker,
                s=size,
                color=colour,
                edgecolors=PAPER,
                linewidths=1,
                zorder=3,
                clip_on=False,
            )
        _label(figure, axes, merged)

    return draw_svg(draw, (10.4, 4.7), picture_id, description)


def draw_svg(draw: Callable[[Figure], None], inches: tuple[float, float], picture_id: str, description: str) -> str:
    """Return what a function draws on an empty figure, as an SVG element of a page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The stubs accept only literal names, which a plain dictionary does not have.
    style: dict[Any, Any] = {
        "svg.hashsalt": "rig",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=inches, dpi=72, layout="constrained")
        draw(figure)
        stream = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    return _inline(stream.getvalue(), picture_id, description)


def loss_bars(lost_counts: Mapping[int, int]) -> str:
    """Return a small SVG element: a bar for each number of lost transactions, as high as the number of states."""
    if not lost_counts:
        return ""
    lost_max = max(lost_counts)
    bin_size = lost_max // _BARS_MAX + 1
    bins = [0] * (lost_max // bin_size + 1)
    for lost, count in lost_counts.items():
        bins[lost // bin_size] += count
    tallest = max(bins)
    text = ", ".join(f"{count} states lost {lost}" for lost, count in sorted(lost_counts.items()))
    bars = []
    for index, count in enumerate(bins):
        # The square root keeps a single bad state visible next to thousands of good ones.
        height = 22 * (count / tallest) ** 0.5 if count else 0
        kind = "zero" if index == 0 and bin_size == 1 else "some"
        bars.append(f'<rect class="{kind}" x="{index * 5}" y="{24 - height:.1f}" width="4" height="{height:.1f}"/>')
    width = len(bins) * 5
    return (
        f'<svg class="bars" role="img" width="{width}" height="25" viewBox="0 0 {width} 25">'
        f"<title>{html.escape(text)}</title>{''.join(bars)}"
        f'<rect class="base" x="0" y="24" width="{width}" height="1"/></svg>'
    )


def _merge(points: Sequence[Point]) -> list[Point]:
    """Return the points from slow to fast; points that would overlap become one point with all their names."""
    merged: list[Point] = []
    for point in sorted(points, key=lambda p: (p.value, p.is_damaged, p.transactions_per_s, p.name)):
        last = merged[-1] if merged else None
        if (
            last is not None
            and (last.value, last.is_damaged) == (point.value, point.is_damaged)
            and point.transactions_per_s <= last.transactions_per_s * (1 + _SAME_SPEED)
        ):
            is_choice = last.is_choice or point.is_choice
            merged[-1] = replace(last, name=f"{last.name}\n{point.name}", is_choice=is_choice)
        else:
            merged.append(point)
    return merged


def _draw_axes(axes: Axes, points: Sequence[Point], axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

    speeds = [point.transactions_per_s for point in points]
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 1.5, max(speeds) * 1.9)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("transactions per virtual second")
    axes.set_ylabel(axis.title)
    if axis.is_share:
        axes.set_ylim(-0.06, max(0.1, 1.2 * max(point.value for point in points)))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1])
    else:
        axes.set_yscale("symlog", linthresh=1, linscale=0.8)
        axes.set_ylim(-0.35, 2 * max(2, *(point.value for point in points)))
        ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= axes.get_ylim()[1]]
        axes.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_yticks([], minor=True)
    axes.grid(visible=True, color=FAINT, linewidth=0.6, alpha=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _label(figure: Figure, axes: Axes, points: Sequence[Point]) -> list[Bbox]:
    """Put each name at the nearest place where it covers no point and no other name; return the taken boxes."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.transforms import Bbox

    FigureCanvasSVG(figure)
    figure.draw_without_rendering()
    taken = []
    for point in points:
        x, y = axes.transData.transform((point.transactions_per_s, point.value))
        taken.append(Bbox.from_extents(x - 8, y - 8, x + 8, y + 8))
    for point, own in zip(points, list(taken), strict=True):
        text = axes.annotate(
            point.name,
            (point.transactions_per_s, point.value),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=10,
            linespacing=1.15,
            ha="left",
            va="bottom",
            annotation_clip=False,
        )
        extent = text.get_window_extent()
        others = [box for box in taken if box is not own]
        dx, dy = _place(own, extent, others, axes.get_window_extent())
        text.set_position((dx, dy))
        taken.append(extent.translated(dx, dy))
        # A name right next to its point needs no line.
        if max(abs(dx + extent.width / 2) - extent.width / 2, abs(dy + extent.height / 2) - extent.height / 2) > 12:
            target = (dx + extent.width / 2, dy if dy > 0 else dy + extent.height)
            axes.annotate(
                "",
                (point.transactions_per_s, point.value),
                xytext=target,
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 6},
            )
    return taken


def _place(own: Bbox, extent: Bbox, taken: Sequence[Bbox], frame: Bbox) -> tuple[float, float]:
    """Return the free offset, in points, of the label's lower left corner that is nearest to its point."""
    width, height = extent.width, extent.height
    places = [(9.0, -height / 2), (-width - 9.0, -height / 2), (-width / 2, 9.0), (-width / 2, -height - 9.0)]
    for distance in range(14, 150, 7):
        for shift in (0.0, -width / 2, width / 2, -width, width):
            places += [(-width / 2 + shift, float(distance)), (-width / 2 + shift, -height - distance)]
    for dx, dy in places:
        box = extent.translated(dx, dy)
        is_inside = frame.x0 + 6 <= box.x0 and box.x1 <= frame.x1 + 10 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        if is_inside and not box.overlaps(own) and not any(box.overlaps(other) for other in taken):
            return dx, dy
    return places[0]


def _inline(svg: str, picture_id: str, description: str) -> str:
    """Return the SVG as an element of a page: with a title, without prolog, with unique ids and the page's colours."""
    element = svg[svg.index("<svg") :].strip()
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture_id}-", element)
    for colour, variable in _COLOURS.items():
        element = element.replace(colour, f"var({variable})")
    # The page scales the picture; a size of its own would override the style sheet.
    element = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", element, count=1)
    element = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", element, count=1)
    opening = f'<svg class="picture" role="img" aria-labelledby="{picture_id}-title"'
    title = f'<title id="{picture_id}-title">{html.escape(description)}</title>'
    head, body = element.split(">", 1)
    return f"{head.replace('<svg', opening, 1)}>{title}{body}"
