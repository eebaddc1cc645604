"""How a talk with a user's program ends: well, too early, with words that are not due, or with processes left."""

from __future__ import annotations

from rig.contract.findings import FindingKind
from rig.engines.own import Ended, NoResult, Process
from rig.engines.program.answers import quote


def misconduct(words: str) -> NoResult:
    """Return the error of a program that breaks the protocol; `words` follow its name."""
    return NoResult(FindingKind.DIED, words)


def early_end(process: Process, when: str) -> Ended:
    """Return the error of a program that has ended while more was due from it."""
    try:
        code = process.end()
    except NoResult as failure:
        return Ended(failure.kind, failure.words)
    return Ended(FindingKind.DIED, f"ended with exit code {code} {when}{process.last_words}")


def require_good_end(process: Process) -> None:
    """Wait for the end of a program; raise NoResult unless it says nothing more and exits with code 0."""
    if (line := process.line()) is not None:
        raise misconduct(f"said {quote(line)} after its last transaction")
    if code := process.end():
        raise misconduct(f"ended with exit code {code} after its last transaction{process.last_words}")
    if process.leftovers:
        raise misconduct(process.leftovers)
