"""The table that ends a run: a row for each setting, with a line for each fault, and the answer below.

A run of many faults gets a grid instead, with one mark for each scenario (`rig.analysis.show.grid`); the report has
every line.

Colour is never the only sign: every result is also a word. Lines are plain text if the output is not a terminal.
"""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rig.analysis.dossiers import Keeps
from rig.analysis.judging import coverage, known_bugs, mutations, protocol
from rig.analysis.judging.metrics import Outcome, loses, loss_of, worst_first
from rig.analysis.judging.outcome import Result, Row, Summary, blindness, note_on_shown, steps_text
from rig.analysis.show import grid, phases, sidebyside
from rig.contract.faultspecs import DISHONEST_FAULTS
from rig.contract.results import Verdict, VerdictKind

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# How each result is shown in a terminal.
_STYLES = {
    Result.KEPT: "green", Result.BROKEN: "bold red", Result.INCONCLUSIVE: "yellow", Result.NOT_JUDGED: "dim",
}  # fmt: skip
_CONTROL_STYLES = {True: "green", False: "bold red", None: "yellow"}
_KINDS_MAX = 5
_NAMES_MAX = 3
_WIDTH_WITH_FAULTS = 112
# On a narrow terminal the promise is left out in favour of the result; the report shows both.
_WIDTH_WITH_PROMISES = 100


def print_table(summary: Summary, console: Console) -> None:
    """Print the table, the controls and the answer to the console."""
    from rich.text import Text

    for line in versions(summary):
        console.print(Text(line), soft_wrap=True)
    for part in _figures(summary, console.width):
        console.print(part)
    for control in summary.controls:
        line = f"control {control.name} ({control.group.fault}) {control.word}: {control.what}"
        console.print(Text(line, style=_CONTROL_STYLES[control.fired]))
    lines = [line for section in (mutations, coverage, phases) for line in section.lines(summary)]
    lines += [f"{row.outcome.scenario.id}: {text}" for row in summary.rows if (text := steps_text(row.outcome))]
    for line in [*lines, *protocol.lines(row.outcome for row in summary.rows)]:
        console.print(Text(line), soft_wrap=True)
    for line in _emulation_lines(summary):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    for line in known_bugs.warnings(summary):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    for row in (row for row in summary.rows if not row.is_sabotaged):
        for line in explanation(row):
            console.print(Text(line, style=_STYLES[row.judgement.result]), soft_wrap=True)
    console.print(Text(headline(summary), style=_STYLES[summary.result]))


def _emulation_lines(summary: Summary) -> list[str]:
    """Return a line for each scenario that user-mode machines could not judge as the emulator does."""
    measured = [row.outcome.measured for row in summary.rows]
    return [
        f"{scenario.scenario.id}: {scenario.plan.emulated_because}"
        for scenario in measured
        if scenario.plan.emulated_because
    ]


def versions(summary: Summary) -> list[str]:
    """Return a line for each measured build: engine, version and source id as read back from it."""
    used = {
        (
            measured.scenario.measured_name,
            *measured.recording.engine_version.partition(" ")[::2],
            ", ".join(
                f"{'recipe' if what == 'image' else what} {text}"
                for what in ("library", "image", "environment", "arguments")
                if (text := measured.recording.settings.get(what) or measured.scenario.tuning.get(what))
            ),
        )
        for measured in (row.outcome.measured for row in summary.rows)
    }
    return [
        f"{engine} {version}" + (f", source id {source}" if source else "") + (f", {build}" if build else "")
        for engine, version, source, build in sorted(used)
    ]


def _figures(summary: Summary, width: int) -> list[Table | Text]:
    """Return the scenarios as tables with a line for each, or as grids with a mark for each if there are many faults.

    File systems side by side follow.
    """
    from rich.text import Text

    if len({row.outcome.scenario.fault for row in summary.rows}) < grid.FAULTS_MIN:
        parts: list[Table | Text] = [
            _table(rows, has_promise=width >= _WIDTH_WITH_PROMISES) for rows in _tables(summary.rows, width)
        ]
    else:
        grids = grid.grids(summary.rows)
        parts = [part for view in grids for part in (Text(view.title), grid.table(view), Text(grid.caption(view)))]
    for comparison in sidebyside.comparisons(summary.rows):
        parts += [Text(comparison.title), sidebyside.table(comparison), Text(sidebyside.CAPTION)]
    return parts


def table_text(summary: Summary, width: int = 120) -> str:
    """Return what `print_table` prints, as plain text of this width."""
    from rich.console import Console

    stream = io.StringIO()
    print_table(summary, Console(file=stream, width=width, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def headline(summary: Summary) -> str:
    """Return the answer of the whole run: one sentence on the promises, then what the run leaves open."""
    left_open = (phases.few_pairs, phases.few_tears, coverage.not_reached, coverage.not_written_back)
    return "".join((_answer(summary), *(sentences(summary) for sentences in left_open)))


def _answer(summary: Summary) -> str:
    rows = [row for row in summary.rows if not row.is_sabotaged and row.judgement.result is not Result.NOT_JUDGED]
    state_count = sum(row.outcome.database_count for row in summary.rows)
    of_scenarios = f"{_scenarios(len(rows))}, {state_count} crash states judged"
    others = _not_judged(summary)
    if summary.result is Result.BROKEN:
        broken = [row.outcome for row in rows if row.judgement.result is Result.BROKEN]
        has_engine = len({row.outcome.scenario.measured_name for row in summary.rows}) > 1
        names = ", ".join(_name(outcome, has_engine=has_engine) for outcome in broken[:_NAMES_MAX])
        names += ", and others" if len(broken) > _NAMES_MAX else ""
        return f"A promise was broken by {names}: {len(broken)} of {of_scenarios}.{others}"
    if others and not rows:
        return f"Inconclusive: nothing was judged, because there was no promise to hold a scenario against.{others}"
    if summary.result is Result.INCONCLUSIVE:
        count = sum(row.judgement.result is Result.INCONCLUSIVE for row in rows)
        return f"Inconclusive: {count} of {of_scenarios}; only what is proven is green.{others}"
    return f"Every promise was kept: {of_scenarios}, and every control fired.{_documented_damage(rows)}{others}"


def _name(outcome: Outcome, *, has_engine: bool) -> str:
    engine = f"{outcome.scenario.measured_name} " if has_engine else ""
    return f"{engine}{outcome.settings_name} under {outcome.scenario.fault}"


def _scenarios(count: int, kind: str = "") -> str:
    return f"{count} {kind}scenario{'' if count == 1 else 's'}"


def _not_judged(summary: Summary) -> str:
    """Return sentences on the scenarios that were not held to a promise."""
    rows = [row for row in summary.rows if not row.is_sabotaged and row.judgement.result is Result.NOT_JUDGED]
    withheld_count = sum(row.is_withheld for row in rows)
    parts = []
    if unpromised_count := len(rows) - withheld_count:
        parts.append(f" Nothing is promised for {_scenarios(unpromised_count, 'more ')}.")
    if withheld_count:
        why = "whose promise cannot be held against the engine here; the reasons are above"
        parts.append(f" Not judged: {_scenarios(withheld_count)} {why}.")
    return "".join(parts)


def _documented_damage(rows: Sequence[Row]) -> str:
    """Return a sentence on damage that breaks no promise only because the documentation warns of it."""
    warned = [row for row in rows if row.promise and row.promise.keeps is not Keeps.ANYTHING]
    names = [
        f"{row.outcome.settings_name} under {row.outcome.scenario.fault}" for row in warned if row.outcome.damage.count
    ]
    # A setting that is damaged on several devices is named once.
    listed = ", ".join(dict.fromkeys(names))
    return f" Damage was seen where the documentation does not exclude it: {listed}." if names else ""


def replay_line(scenario_id: str, verdict: Verdict, run_dir: str = "") -> str:
    """Return the command that rebuilds one crash state and shows its verdict, ready to paste.

    `run_dir` is needed only for a run outside the default directory.
    """
    place = ["--run-dir", run_dir] if run_dir else []
    return shlex.join(["rig", "replay", scenario_id, verdict.state, *place])


def number(value: float | None) -> str:
    """Return a rate or ratio with at most three significant digits, or a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    """Return a share of cut instants in percent; a share above zero never reads as zero."""
    if value is None:
        return "-"
    if 0 < value < 0.001:
        return "< 0.1 %"
    # A share that merely rounds to 0 or 100 % must not look like one.
    return f"{min(value * 100, 99.9):.1f} %" if value < 1 else "all"


def damage_text(outcome: Outcome) -> str:
    """Return text such as `0 of 812 (<= 0.37 %)`, or why there is no figure."""
    damage = outcome.damage
    if damage.total:
        return f"{damage.count} of {damage.total} ({damage.bound_text})"
    return "epochs in doubt" if blindness(outcome.measured.plan) else "nothing judged"


def detection_text(outcome: Outcome) -> str:
    """Return text such as `38 / 5 / 40`: states in which engine, file system or nobody noticed what a disk did."""
    if outcome.scenario.fault not in DISHONEST_FAULTS:
        return "-"
    return f"{outcome.detected_count} / {outcome.filesystem_detected_count} / {outcome.silent_count}"


def _tables(rows: Sequence[Row], width: int) -> list[Sequence[Row]]:
    """Return the rows of each table: one for each file system, and for each fault if a fault column would not fit."""
    by_group: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        scenario = row.outcome.scenario
        by_group.setdefault((scenario.filesystem, "" if width >= _WIDTH_WITH_FAULTS else scenario.fault), []).append(
            row
        )
    return [by_group[key] for key in sorted(by_group)]


def _table(rows: Sequence[Row], *, has_promise: bool) -> Table:
    from rich import box
    from rich.table import Table

    has_fault = len({row.outcome.scenario.fault for row in rows}) > 1
    has_detection = any(row.outcome.scenario.fault in DISHONEST_FAULTS for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.title, table.title_justify = _title(rows), "left"
    table.add_column("settings", no_wrap=True)
    for name in ("tx/s", "FLUSH\n/tx"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_fault:
        table.add_column("fault", no_wrap=True)
    for name in ("lost\nmax", "instants\nlosing", "damage"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_detection:
        table.add_column("engine / fs\n/ silent", justify="right", no_wrap=True)
    if has_promise:
        table.add_column("promise", no_wrap=True)
    table.add_column("result")
    has_engine = len({row.outcome.scenario.measured_name for row in rows}) > 1
    for _, same in groupby(rows, key=_settings_key):
        for index, row in enumerate(same):
            name = f"{row.outcome.scenario.measured_name} " if has_engine else ""
            columns = _columns(row, name, is_first=index == 0, has_fault=has_fault, has_detection=has_detection)
            table.add_row(*columns, *_promise_and_result(row)[0 if has_promise else 1 :])
    return table


def _title(rows: Sequence[Row]) -> str:
    scenarios = [row.outcome.scenario for row in rows]
    names = (
        {scenario.measured_name for scenario in scenarios},
        {scenario.filesystem for scenario in scenarios},
        {f"device {scenario.device.name}" for scenario in scenarios},
        {scenario.fault for scenario in scenarios},
    )
    return " | ".join(", ".join(sorted(name)) for name in names)


def _settings_key(row: Row) -> tuple[str, ...]:
    scenario = row.outcome.scenario
    return (scenario.engine, scenario.filesystem, row.outcome.settings_name, scenario.device.name)


def _columns(row: Row, name: str, *, is_first: bool, has_fault: bool, has_detection: bool) -> list[Text]:
    from rich.text import Text

    outcome = row.outcome
    speed = [
        f"{name}{outcome.settings_name}",
        number(outcome.transactions_per_s),
        number(outcome.flush_per_transaction),
    ]
    columns = [
        *(speed if is_first else ["", "", ""]),
        *([outcome.scenario.fault] if has_fault else []),
        "-" if outcome.lost_max is None else str(outcome.lost_max),
        share(outcome.instant_share_losing),
        damage_text(outcome),
        *([detection_text(outcome)] if has_detection else []),
    ]
    return [*map(Text, columns)]


def _promise_and_result(row: Row) -> list[Text]:
    from rich.text import Text

    promise = row.promise.keeps.value if row.promise else "not known"
    return [Text(promise), Text(row.result_text, style=_style(row))]


def _style(row: Row) -> str:
    if row.is_sabotaged and row.judgement.result is Result.BROKEN:
        return "cyan"
    return _STYLES[row.judgement.result] if row.result_text == row.judgement.result else "dim"


def explanation(row: Row) -> list[str]:
    """Return the lines below the table for a result that is not green: the reasons, and the commands to paste.

    A green one may lose what a restart has shown: that gets lines too, because the table shows the loss.
    """
    scenario_id = row.outcome.scenario.id
    if row.judgement.result is Result.KEPT or (row.judgement.result is Result.NOT_JUDGED and not row.is_withheld):
        shown = note_on_shown(row.outcome, row.promise) if row.promise and row.judgement.result is Result.KEPT else ""
        return [f"{row.judgement.result.value} {scenario_id}: {shown}", *worst_lines(row)] if shown else []
    lines = [f"{row.judgement.result.value} {scenario_id}: {'; '.join(row.judgement.reasons)}"]
    if row.judgement.result is Result.BROKEN and row.promise and row.promise.note:
        lines.append(f"  {row.promise.note}")
    if row.blame:
        lines.append(f"  {row.blame}")
    return lines + _replay_lines(row, row.judgement.broken_by)


def worst_lines(row: Row) -> list[str]:
    """Return commands that replay the worst losses of a scenario, whether they break its promise or not."""
    return _replay_lines(row, worst_first(filter(loses, row.outcome.measured.verdicts)))


def _replay_lines(row: Row, verdicts: Sequence[Verdict]) -> list[str]:
    """Return a command for the first verdict of each kind, and how many states are of that kind."""
    by_kind: dict[VerdictKind, Verdict] = {}
    for verdict in verdicts:
        by_kind.setdefault(verdict.kind, verdict)
    counts = Counter(verdict.kind for verdict in verdicts)
    name = row.outcome.scenario.id
    return [
        f"  {replay_line(name, verdict, row.run_dir)}  # {_verdict_text(verdict, counts[kind])}"
        for kind, verdict in list(by_kind.items())[:_KINDS_MAX]
    ]


def _verdict_text(verdict: Verdict, count: int) -> str:
    """Return what a verdict says, on one line, and how many states have one of its kind."""
    words = f"{verdict.kind.value}, {loss_text(verdict)}; {count} such state{'' if count == 1 else 's'}"
    return f"{words}: {' '.join(verdict.detail.split())}" if verdict.detail else words


def loss_text(verdict: Verdict) -> str:
    """Return how many acknowledged transactions a state lost; a database that shows none has lost all."""
    lost = loss_of(verdict)
    if lost is None:
        return f"{verdict.acked} acknowledged"
    return (
        f"lost all {lost} acknowledged" if lost == verdict.acked > 0 else f"lost {lost} of {verdict.acked} acknowledged"
    )
