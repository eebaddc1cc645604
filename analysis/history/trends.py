"""Each scenario over all nights: how often it had which result, when it last changed, and what changed with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.analysis.history.changes import SPEED_SHARE
from rig.analysis.history.nights import open_history

if TYPE_CHECKING:
    from rich.table import Table

# A curve has at most this many points; each shows the worst of its nights.
POINTS_MAX = 100
HEAD = ("scenario", "nights", "result", "lost max", "file contents", "tx/s", "last change", "changed with it")
# The columns before what changed.
_FIGURES_END = 6
_VERSIONS = ("build", "kernel", "qemu", "image", "template", "rig", "commit", "seed")


@dataclass(frozen=True)
class Turn:
    """A night on which a scenario differed from the night before: what changed, and the versions with it."""

    began: datetime
    run: str
    # Texts such as `kept -> broken`.
    what: tuple[str, ...]
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Trend:
    """One scenario on one device with one profile."""

    scenario: str
    device: str
    profile: str
    night_count: int
    last: datetime
    shown: str
    lost_max: int | None
    file_contents: int | None
    per_virtual_s: float | None
    # The last night on which it changed; None if it never did.
    turn: Turn | None
    # The worst of each stretch of nights, in order; None where there is no figure.
    losses: tuple[float | None, ...]
    speeds: tuple[float | None, ...]
    exposures: tuple[float | None, ...]


def trends(folder: Path, patterns: Sequence[str] = ()) -> list[Trend]:
    """Return the trend of each scenario whose id matches a shell pattern (default: all), sorted by id."""
    with open_history(folder) as connection:
        rows = connection.execute(_SQL).fetchall()
    all_trends = [_trend(row) for row in rows]
    return [
        trend
        for trend in all_trends
        # After the id comes the name of a program.
        if not patterns or any(fnmatchcase(trend.scenario.partition(" ")[0], pattern) for pattern in patterns)
    ]


# A scenario changes with its result, its worst loss, or its virtual speed. Sabotaged scenarios test the rig.
_SQL = f"""
WITH nights AS MATERIALIZED (
    SELECT scenario, coalesce(device, '') AS device, profile, began, run, shown, lost_max, file_contents,
        transactions_per_virtual_s AS speed, row_number() OVER own AS number, ntile({POINTS_MAX}) OVER own AS point,
        number > 1 AND (
            shown IS DISTINCT FROM lag(shown) OVER own OR lost_max IS DISTINCT FROM lag(lost_max) OVER own
            OR abs(speed / lag(transactions_per_virtual_s) OVER own - 1) > {SPEED_SHARE}
        ) AS is_turn
    FROM scenarios WHERE NOT is_sabotaged
    WINDOW own AS (PARTITION BY scenario, device, profile ORDER BY began, run)
), points AS (
    SELECT scenario, device, profile, point, max(lost_max) AS loss, min(speed) AS speed,
        min(file_contents) AS exposure
    FROM nights GROUP BY ALL
), curves AS (
    SELECT scenario, device, profile, list(loss ORDER BY point) AS losses, list(speed ORDER BY point) AS speeds,
        list(exposure ORDER BY point) AS exposures
    FROM points GROUP BY ALL
), numbers AS (
    SELECT scenario, device, profile, max(number) AS last, max(number) FILTER (is_turn) AS turn
    FROM nights GROUP BY ALL
), shown AS (
    SELECT nights.*, {", ".join(_VERSIONS)}
    FROM numbers JOIN nights USING (scenario, device, profile)
    JOIN scenarios ON scenarios.scenario = nights.scenario AND coalesce(scenarios.device, '') = nights.device
        AND scenarios.profile = nights.profile AND scenarios.run = nights.run AND scenarios.began = nights.began
    WHERE number IN (last, turn, turn - 1)
)
SELECT numbers.scenario, numbers.device, numbers.profile, last, latest,
    CASE WHEN turn IS NOT NULL THEN before END, CASE WHEN turn IS NOT NULL THEN turned END, losses, speeds, exposures
FROM numbers JOIN curves USING (scenario, device, profile)
JOIN shown AS latest
    ON (latest.scenario, latest.device, latest.profile) = (numbers.scenario, numbers.device, numbers.profile)
    AND latest.number = last
LEFT JOIN shown AS turned
    ON (turned.scenario, turned.device, turned.profile) = (numbers.scenario, numbers.device, numbers.profile)
    AND turned.number = turn
LEFT JOIN shown AS before
    ON (before.scenario, before.device, before.profile) = (numbers.scenario, numbers.device, numbers.profile)
    AND before.number = turn - 1
ORDER BY 1, 2, 3
"""  # noqa: S608 - names of our own columns


def _trend(row: tuple[Any, ...]) -> Trend:
    scenario, device, profile, night_count, latest, before, turned, losses, speeds, exposures = row
    return Trend(
        scenario, device, profile, night_count, latest["began"], latest["shown"], latest["lost_max"],
        latest["file_contents"], latest["speed"], _turn(before, turned) if before else None,
        tuple(losses), tuple(speeds), tuple(exposures),
    )  # fmt: skip


def _turn(before: Mapping[str, Any], turned: Mapping[str, Any]) -> Turn:
    def differing(names: Mapping[str, str]) -> tuple[str, ...]:
        pairs = [(word, _text(before[name]), _text(turned[name])) for name, word in names.items()]
        return tuple(f"{word} {old} -> {new}".strip() for word, old, new in pairs if old != new)

    what = differing({"shown": "", "lost_max": "lost max", "speed": "tx/s"})
    return Turn(turned["began"], turned["run"], what, differing({name: name for name in _VERSIONS}))


def _text(value: object) -> str:
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def table(trends: Sequence[Trend]) -> Table:
    """Return a line for each scenario, for a terminal; `turn_lines` follow it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in HEAD[:_FIGURES_END]:
        made.add_column(name, overflow="fold")
    for trend in trends:
        made.add_row(*map(Text, cells(trend)[:_FIGURES_END]))
    return made


def turn_lines(trends: Sequence[Trend]) -> list[str]:
    """Return a line for each scenario that has changed: when it last did, how, and what changed with it."""
    turned = [(trend, cells(trend)) for trend in trends if trend.turn]
    return [f"{trend.scenario} changed on {change}; with it: {with_it}" for trend, (*_, change, with_it) in turned]


def cells(trend: Trend) -> tuple[str, ...]:
    """Return the cells of a scenario's line, in the order of the table."""
    name = " ".join(filter(None, (trend.scenario, f"({trend.device})" if trend.device else "", f"[{trend.profile}]")))
    changed = f"{trend.turn.began:%Y-%m-%d}: {'; '.join(trend.turn.what)}" if trend.turn else "never"
    with_it = "; ".join(trend.turn.versions) if trend.turn and trend.turn.versions else "-"
    figures = map(_dash, (trend.lost_max, trend.file_contents, trend.per_virtual_s))
    return (name, str(trend.night_count), trend.shown, *figures, changed, with_it if trend.turn else "")


def _dash(value: float | None) -> str:
    return "-" if value is None else _text(value)
