"""What a program prints, on a line of its own.

While it runs: `ack 7`, `ack 7 STEP` or `fail 7 REASON`, and with several clients `begin 7` before it. After a cut:
`have 7` or `torn 8 REASON`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rig.contract.findings import FindingKind
from rig.engines.answers import Inventory
from rig.engines.own import NoResult, Reply

_LINE = re.compile(r"have ([0-9]{1,9})|torn ([0-9]{1,9})(?: (.*))?", re.ASCII)
_ACK = re.compile(r"ack ([0-9]{1,9})(?: ([A-Za-z0-9][A-Za-z0-9_-]{0,39}))?", re.ASCII)
_FAIL = re.compile(r"fail ([0-9]{1,9})(?: (.*))?", re.ASCII)
_BEGIN = re.compile(r"begin ([0-9]{1,9})", re.ASCII)
_SHOWN_CHARS = 80


def parse(lines: Iterable[str]) -> Inventory:
    """Return the answer; raise NoResult naming the first line that is no answer or contradicts an earlier one."""
    have: set[int] = set()
    torn: dict[int, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            raise NoResult(
                FindingKind.CORRUPT, f"answered {quote(line)}, which is neither `have N` nor `torn N REASON`"
            )
        number = int(match[1] or match[2])
        if number in have or number in torn:
            raise NoResult(FindingKind.CORRUPT, f"spoke twice of transaction {number}")
        if match[1]:
            have.add(number)
        else:
            torn[number] = match[3] or ""
    return Inventory(frozenset(have), torn)


def answer_in(line: str) -> tuple[int, Reply] | None:
    """Return of which transaction a line says that it is over, and what; None if it does not say so."""
    if (match := _ACK.fullmatch(line)) and _is_plain(match[1]):
        return int(match[1]), Reply(step=match[2] or "")
    if (match := _FAIL.fullmatch(line)) and _is_plain(match[1]):
        return int(match[1]), Reply(failure=match[2] or "")
    return None


def begin_in(line: str) -> int | None:
    """Return the transaction that begins according to a line; None if it does not say so."""
    return int(match[1]) if (match := _BEGIN.fullmatch(line)) and _is_plain(match[1]) else None


def _is_plain(digits: str) -> bool:
    return digits == str(int(digits))


def quote(line: str) -> str:
    """Return a line as messages quote it."""
    return repr(line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "...")
