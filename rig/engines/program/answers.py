"""What `PROGRAM recover` prints: `have 7` or `torn 8 REASON` on a line of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rig.contract.findings import FindingKind
from rig.engines.answers import Inventory
from rig.engines.own import Grief

_LINE = re.compile(r"have ([0-9]{1,9})|torn ([0-9]{1,9})(?: (.*))?", re.ASCII)
_SHOWN_CHARS = 80


def parsed(lines: Iterable[str]) -> Inventory:
    """Return the answer; raise Grief naming the first line that is no answer or contradicts an earlier one."""
    have: set[int] = set()
    torn: dict[int, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            raise Grief(FindingKind.CORRUPT, f"answered {shown(line)}, which is neither `have N` nor `torn N REASON`")
        number = int(match[1] or match[2])
        if number in have or number in torn:
            raise Grief(FindingKind.CORRUPT, f"spoke twice of transaction {number}")
        if match[1]:
            have.add(number)
        else:
            torn[number] = match[3] or ""
    return Inventory(frozenset(have), torn)


def shown(line: str) -> str:
    """Return a line as messages quote it."""
    return repr(line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "...")
