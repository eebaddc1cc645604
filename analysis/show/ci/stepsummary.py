"""The summary of a run in Markdown, as GitHub shows it below a step and GitLab in a comment.

GitHub refuses a summary above 1 MiB. So the parts stand in the order of their weight, and what does not fit any more is
left out and counted.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from rig.analysis.history.changes import Changes
from rig.analysis.history.changetext import answer as answer_of
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.analysis.show.ci.cases import Case, CaseEnd
from rig.analysis.show.table import damage_text, headline, number, share, versions

SUMMARY_BYTES_MAX = 900_000
# Room for the last sentence.
_RESERVE_BYTES = 200
_HEAD = ("settings", "tx/s", "FLUSH/tx", "fault", "lost max", "instants losing", "damage", "promise", "result")


def step_summary(
    summary: Summary, cases: Sequence[Case], changes: Changes | None = None, bytes_max: int = SUMMARY_BYTES_MAX
) -> str:
    """Return the headline, what failed or has no answer, what got better, and the table."""
    parts: list[str] = []
    size_bytes, left_count = 0, 0
    for part in _parts(summary, cases, changes):
        size_bytes += len(part.encode())
        if left_count or size_bytes > bytes_max - _RESERVE_BYTES:
            left_count += 1
        else:
            parts.append(part)
    if left_count:
        parts.append(f"\n{left_count} parts more did not fit here; the report has them.\n")
    return "".join(parts)


def _parts(summary: Summary, cases: Sequence[Case], changes: Changes | None) -> Iterator[str]:
    """Yield the summary in pieces; it may end after any of them."""
    yield f"### {escape_markdown(answer_of(changes) if changes else headline(summary))}\n"
    if changes:
        yield f"\n{escape_markdown(headline(summary))}\n"
    for answer, title in ((CaseEnd.FAILED, "Failed"), (CaseEnd.UNANSWERED, "No answer")):
        wanted = [case for case in cases if case.answer is answer]
        if wanted:
            yield f"\n#### {title}: {len(wanted)}\n"
        for case in wanted:
            yield _explanation(case)
    better = [f"- {escape_markdown(str(change))}\n" for change in (changes.better if changes else ())]
    yield from (f"\n#### Better: {len(better)}\n\n", *better) if better else ()
    for title, rows in _by_title(summary.rows).items():
        yield f"\n#### {escape_markdown(title)}\n\n| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}\n"
        for row in rows:
            yield f"| {' | '.join(_columns(row))} |\n"
    quiet = [control for control in summary.controls if not control.fired]
    yield f"\nControls: {len(summary.controls) - len(quiet)} of {len(summary.controls)} fired.\n"
    for control in quiet:
        name = f"{control.name} ({control.group})"
        yield f"- {escape_markdown(name)} {control.word}: {escape_markdown(control.what)}\n"
    for line in versions(summary):
        yield f"\n{escape_markdown(line)}\n"


def _explanation(case: Case) -> str:
    shown = f"\n**{escape_markdown(case.name)}** {escape_markdown(case.reason)}\n"
    commands = [line.strip() for line in case.lines if line.strip().startswith("rig replay ")]
    return shown + (f"\n```sh\n{chr(10).join(commands)}\n```\n" if commands else "")


def _by_title(rows: Sequence[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        scenario = row.outcome.scenario
        tables.setdefault(f"{scenario.engine} on {scenario.filesystem}, device {scenario.device.name}", []).append(row)
    return tables


def _columns(row: Row) -> list[str]:
    outcome = row.outcome
    result = escape_markdown(row.result_text)
    is_bad = row.judgement.result in {Result.BROKEN, Result.INCONCLUSIVE} and not row.is_sabotaged
    return [
        escape_markdown(outcome.settings_name),
        number(outcome.transactions_per_s),
        number(outcome.flush_per_transaction),
        outcome.scenario.fault,
        "-" if outcome.lost_max is None else str(outcome.lost_max),
        escape_markdown(share(outcome.instant_share_losing)),
        escape_markdown(damage_text(outcome)),
        row.promise.keeps.value if row.promise else "not known",
        f"**{result}**" if is_bad else result,
    ]


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
