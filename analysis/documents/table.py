"""The claims and their verdicts for the terminal: a table for each document, or everything about a few claims.

Colour is never the only sign: every verdict is also a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rig.analysis.documents.answer import Answer
from rig.analysis.documents.claim import ClaimVerdict, SummaryLine
from rig.analysis.documents.measuring import Answered

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Up to this many claims are shown with everything that is known about them.
_DETAILED_MAX = 3
_STYLES = {
    ClaimVerdict.CONFIRMED: "green",
    ClaimVerdict.IMPRECISE: "yellow",
    ClaimVerdict.REFUTED: "bold red",
    ClaimVerdict.NOT_MEASURED: "dim",
}


def print_answers(answered: Sequence[Answered], console: Console) -> None:
    """Print a table for each document with its summary, or the details of a few claims, and the count of verdicts."""
    from rich.text import Text

    answers = [answer for document in answered for answer in document.answers]
    if len(answers) <= _DETAILED_MAX:
        for answer in answers:
            for line in details(answer):
                console.print(line, soft_wrap=True, highlight=False, markup=False)
    else:
        for document in answered:
            console.print(_table(document))
            for line in summary(document):
                console.print(Text(f"- {line}"))
            console.print()
    console.print(Text(headline(answers)))


def headline(answers: Sequence[Answer]) -> str:
    """Return how many claims have which verdict, in one sentence."""
    counts = Counter(answer.verdict for answer in answers)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ClaimVerdict if counts[verdict])
    return f"{len(answers)} claim{'' if len(answers) == 1 else 's'}: {words}."


def summary(answered: Answered) -> list[str]:
    """Return what a reader of the document wants to know; a line whose claims got other verdicts says so instead."""
    verdicts = {answer.claim.id: answer.verdict for answer in answered.answers}
    # If only some claims were asked for, there is nothing to sum up.
    lines = answered.document.summary if len(verdicts) > _DETAILED_MAX else ()
    return [_sentence(line, verdicts) for line in lines]


def _sentence(line: SummaryLine, verdicts: dict[str, ClaimVerdict]) -> str:
    other = {claim_id: verdicts.get(claim_id, ClaimVerdict.NOT_MEASURED) for claim_id, wanted in line.rests_on.items()}
    other = {claim_id: verdict for claim_id, verdict in other.items() if verdict is not line.rests_on[claim_id]}
    if not other:
        return line.text
    return f"Open: {', '.join(f'{claim_id} is {verdict}' for claim_id, verdict in other.items())}."


def details(answer: Answer) -> list[str]:
    """Return everything about one claim, line by line."""
    claim = answer.claim
    facts = {
        "": f"{claim.id}, line {claim.line}: {answer.verdict}",
        "it says": claim.says,
        "measured": claim.metric,
        "threshold": claim.threshold,
        "control": claim.control,
        "seen": answer.seen,
        "true is": answer.truth,
        "because": answer.why,
        "documented": f"{claim.documentation} ({claim.source})",
    }
    lines = [f"{name:12}{text}" if name else text for name, text in facts.items() if text]
    return lines + [f"{'replay' if not index else '':12}{line}" for index, line in enumerate(answer.replays)]


def _table(answered: Answered) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    document = answered.document
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    table.title = f"{document.id} | {document.about} | {document.file}"
    table.add_column("claim", no_wrap=True)
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("it says", ratio=2)
    table.add_column("verdict", no_wrap=True)
    table.add_column("because", ratio=3)
    for answer in answered.answers:
        claim = answer.claim
        verdict = Text(answer.verdict, style=_STYLES[answer.verdict])
        because = answer.why or answer.truth or answer.seen
        table.add_row(claim.id, str(claim.line), Text(claim.says), verdict, Text(because))
    return table
