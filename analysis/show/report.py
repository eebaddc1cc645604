"""One self-contained HTML page: what each setting loses, next to how fast it is. The same input gives the same bytes.

The page fetches nothing: it contains its style and its pictures. Messages of engines and files are shown as text, never
as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rig.analysis.advice import advicetext
from rig.analysis.advice.candidates import variant
from rig.analysis.dossiers import Keeps
from rig.analysis.explain.drawing import svg
from rig.analysis.explain.story import Telling
from rig.analysis.judging import coverage, known_bugs, mutations, protocol
from rig.analysis.judging.controls import group_of
from rig.analysis.judging.metrics import loses, worst_first
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.analysis.judging.randomcut import RandomCut, random_cut
from rig.analysis.show import enginetable, grid, pages, phases, sidebyside
from rig.analysis.show.broken import breaks
from rig.analysis.show.costs import costs
from rig.analysis.show.findings import findings, is_comparable
from rig.analysis.show.pictures import RING, SETTINGS_MIN, Axis, Point, loss_bars, speed_against_loss
from rig.analysis.show.table import (
    damage_text,
    detection_text,
    headline,
    loss_text,
    number,
    replay_line,
    share,
    versions,
)
from rig.contract.faultspecs import DISHONEST_FAULTS
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import Verdict, VerdictKind
from rig.speed.speeds import Speeds

# An allowed loss is illustrated by its worst states; a broken promise shows every state.
_ILLUSTRATIONS_MAX = 3
# Kinds of broken promises on the first screens.
_BREAKS_MAX = 12
_PICTURED_FAULTS = ("powercut", "torn")


@dataclass(frozen=True)
class Picture:
    """One figure of the page with its caption; `svg` is trusted markup that the rig generated."""

    svg: str
    caption: str


@dataclass(frozen=True)
class StatesToReplay:
    """The states of one scenario worth replaying, as (command, verdict) pairs, worst first."""

    row: Row
    title: str
    states: tuple[tuple[str, Verdict], ...]
    hidden_count: int


def write_report(
    summary: Summary, run_info: Mapping[str, str], out: Path, speeds: Speeds | None = None, *,
    tellings: Mapping[str, Telling] | None = None, why_pages: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write the report to `out`, durably or not at all; `run_info` is shown as it is, the only place for a time."""
    pages.write(report_html(summary, run_info, speeds, tellings=tellings, why_pages=why_pages), out)


def report_html(
    summary: Summary, run_info: Mapping[str, str], speeds: Speeds | None = None, *,
    tellings: Mapping[str, Telling] | None = None, why_pages: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Return the whole page as text; `speeds` are real figures to show next to the virtual ones.

    By scenario: `tellings` are explanations of broken promises, and `why_pages` the addresses of their pages.
    """
    values = {
        "breaks": breaks(summary, tellings),
        "breaks_max": _BREAKS_MAX,
        "why_pages": why_pages or {},
        "picture_of": svg,
        "headline": headline(summary),
        "result": summary.result,
        "summary": summary,
        "findings": findings(summary),
        "pictures": _pictures(summary),
        "grids": grid.grids(summary.rows) if len({row.outcome.scenario.fault for row in summary.rows}) > 1 else [],
        "mark": grid.mark,
        "engine_tables": enginetable.tables(summary.rows),
        "promise_text": enginetable.promise,
        "seen_text": enginetable.loss_text,
        "comparisons": sidebyside.comparisons(summary.rows),
        "cell_text": sidebyside.text,
        "comparison_caption": sidebyside.CAPTION,
        "cuts": _cuts(summary),
        "percent": advicetext.percent,
        "estimate": advicetext.estimate,
        "groups": [(str(group), list(rows)) for group, rows in groupby(_by_group(summary), key=_group)],
        "bars": {id(row): loss_bars(row.outcome.lost_counts) for row in summary.rows},
        "damage_text": damage_text,
        "loss_text": loss_text,
        "detection_text": detection_text,
        "dishonest": DISHONEST_FAULTS,
        "costs": costs(summary, speeds),
        "speeds": speeds,
        "kinds": _kinds(summary),
        "mutations": mutations.scores(summary),
        "coverages": coverage.coverages(summary),
        "never": coverage.NEVER,
        "phases": phases.phases(summary),
        "pairs_text": phases.pairs_text,
        "protocols": _protocols(summary),
        "evidence": _evidence(summary),
        "run_info": dict(run_info),
        "common": _common_facts(summary),
        "filesystems": _filesystems(summary),
        "audited_count": sum(row.outcome.measured.plan.audited_count for row in summary.rows),
        "versions": versions(summary),
        "known_bugs": known_bugs.warnings(summary),
        "Result": Result,
        "Keeps": Keeps,
        "id": id,
    }
    return pages.render("report.html.j2", values, filters={"number": number, "share": share, "seconds": _seconds})


def _cuts(summary: Summary) -> list[tuple[Row, str, RandomCut]]:
    """Return each scenario with cut instants and no shim, its name and variant, and its loss at a random instant."""
    cuts = [
        (row, f"{row.outcome.settings_name} {variant(row.outcome.scenario)}".strip(), random_cut(row.outcome))
        for row in _by_group(summary)
        if row.outcome.scenario.shim == Shim.NONE
    ]
    return [(row, name, cut) for row, name, cut in cuts if cut]


def _group(row: Row) -> str:
    scenario = row.outcome.scenario
    return f"{group_of(scenario)}, device {scenario.device.name}"


def _by_group(summary: Summary) -> list[Row]:
    return sorted(summary.rows, key=_group)


def _seconds(virtual_ns: int) -> str:
    return f"{virtual_ns / 1e9:.3g} s" if virtual_ns else "0"


def _protocols(summary: Summary) -> list[tuple[str, str, protocol.SyncComparison]]:
    """Return for each setting its name, the sampled sync calls, and how they compare with the documented ones."""
    by_name = {}
    for row in summary.rows:
        syncs = row.outcome.measured.recording.syncs
        compared = protocol.compare(row.outcome.measured)
        if syncs or compared.note:
            seen = sorted(syncs.items(), key=lambda item: (-item[1], item[0]))
            shown = "; ".join(f"{sequence} ({count})" for sequence, count in seen)
            by_name[row.outcome.settings_name, shown] = compared
    return [(name, shown, compared) for (name, shown), compared in by_name.items()]


def _kinds(summary: Summary) -> list[VerdictKind]:
    """Return the kinds of verdict that occurred at all, from best to worst."""
    return [kind for kind in VerdictKind if any(row.outcome.kind_counts.get(kind) for row in summary.rows)]


def _pictures(summary: Summary) -> list[Picture]:
    pictures: list[Picture] = []
    faults = {row.outcome.scenario.fault for row in summary.rows}
    # The speed comes from the recording, so the pictures of many faults would hardly differ.
    wanted = faults & set(_PICTURED_FAULTS) if len(faults) >= grid.FAULTS_MIN else faults
    for index, (group, rows) in enumerate(groupby(_by_group(summary), key=_group)):
        shown = [
            row
            for row in rows
            if row.outcome.transactions_per_s and row.outcome.scenario.fault in wanted and is_comparable(row)
        ]
        if len({row.outcome.settings_name for row in shown if row.outcome.scenario.shim == Shim.NONE}) < SETTINGS_MIN:
            continue
        most = [_point(row, row.outcome.lost_max) for row in shown if row.outcome.lost_max is not None]
        often = [
            _point(row, row.outcome.instant_share_losing)
            for row in shown
            if row.outcome.instant_share_losing is not None
        ]
        for number_in_group, (points, axis, what) in enumerate(
            (
                (most, Axis("acknowledged transactions lost, at most", is_share=False), "How much is lost"),
                (often, Axis("share of cut instants that lose", is_share=True), "How often something is lost"),
            )
        ):
            if points:
                caption = f"{what}: {group}. Right is faster, up is worse. {RING}"
                svg = speed_against_loss(points, axis, f"picture-{index}-{number_in_group}", caption)
                pictures.append(Picture(svg, caption))
    return pictures


def _point(row: Row, value: float) -> Point:
    outcome, is_broken = row.outcome, row.judgement.result is Result.BROKEN and not row.is_sabotaged
    assert outcome.transactions_per_s is not None
    name = f"{outcome.settings_name} (broken)" if is_broken else outcome.settings_name
    is_choice = outcome.scenario.shim == Shim.NONE and not is_broken
    return Point(name, outcome.transactions_per_s, value, outcome.damage.count > 0, is_choice)


def _evidence(summary: Summary) -> list[StatesToReplay]:
    """Return first the broken promises with all their states, then the worst states of every allowed loss."""
    broken, allowed = [], []
    for row in summary.rows:
        scenario = row.outcome.scenario
        states = row.judgement.broken_by
        if states:
            title = f"broke its promise: {row.promise.text if row.promise else ''}"
            title += f", because its shim {_shim_text(scenario.shim)}" if row.is_sabotaged else ""
            title += f"; {row.blame}" if row.blame else ""
            broken.append(StatesToReplay(row, title, _commands(row, states), 0))
            continue
        losing = worst_first(verdict for verdict in row.outcome.measured.verdicts if loses(verdict))
        if losing:
            title = f"lost, as allowed: {row.promise.keeps.value}" if row.promise else "lost; no promise is known"
            if row.judgement.result is Result.INCONCLUSIVE:
                title = f"lost; {'; '.join(row.judgement.reasons)}"
            title += f"; {row.blame}" if row.blame else ""
            shown = losing[:_ILLUSTRATIONS_MAX]
            allowed.append(StatesToReplay(row, title, _commands(row, shown), len(losing) - len(shown)))
    return sorted(broken, key=lambda item: item.row.is_sabotaged) + allowed


def _shim_text(shim: str) -> str:
    controls = {"eatmydata": "swallows every sync (control)", "lastwriter": "trusts the clock (control)"}
    return controls.get(shim, f"leaves out {shim.removeprefix(DROP_PREFIX)}")


def _commands(row: Row, states: Sequence[Verdict]) -> tuple[tuple[str, Verdict], ...]:
    return tuple((replay_line(row.outcome.scenario.id, verdict, row.run_dir), verdict) for verdict in states)


def _filesystems(summary: Summary) -> list[tuple[str, str]]:
    """Return each way in which a file system was made and mounted, as read back; some faults need their own options."""
    words = {
        (measured.scenario.filesystem, " | ".join(f"{what} {text}" for what, text in read_back.items()))
        for measured in (row.outcome.measured for row in summary.rows)
        if (read_back := measured.recording.filesystem)
    }
    return sorted(words)


def _common_facts(summary: Summary) -> dict[str, str]:
    """Return what the recordings were made with, listing every value where they differ."""
    facts = [row.outcome.measured.recording for row in summary.rows]
    columns = {
        "engine version": [fact.engine_version for fact in facts],
        "guest kernel": [fact.kernel for fact in facts],
        "QEMU": [fact.qemu_version for fact in facts],
        "image": [fact.image for fact in facts],
        "template": [fact.template for fact in facts],
        "seed": [str(fact.seed) for fact in facts],
    }
    return {name: ", ".join(sorted(set(values))) for name, values in columns.items()}
