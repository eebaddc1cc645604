"""Annotations of a GitHub workflow: a line on standard output for what failed or has no answer, at most ten.

GitHub shows ten errors and ten warnings of a step and drops the others without a word, so the tenth says how many more
there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.show.ci.cases import Case, CaseEnd

ANNOTATIONS_MAX = 10
_COMMANDS = {CaseEnd.FAILED: "error", CaseEnd.UNANSWERED: "warning"}


def workflow_commands(cases: Sequence[Case]) -> list[str]:
    """Return the workflow commands, failures first."""
    wanted = [case for answer in _COMMANDS for case in cases if case.answer is answer]
    shown = wanted if len(wanted) <= ANNOTATIONS_MAX else wanted[: ANNOTATIONS_MAX - 1]
    lines = [_command(_COMMANDS[case.answer], case.name, "\n".join((case.reason, *case.lines[1:]))) for case in shown]
    if left := wanted[len(shown) :]:
        title = f"{len(left)} more scenarios"
        lines.append(_command(_COMMANDS[left[0].answer], title, "the step summary and the JUnit file have them all"))
    return lines


def _command(command: str, title: str, message: str) -> str:
    # In a property, a colon or a comma would end the value.
    safe_title = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{command} title={safe_title}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
