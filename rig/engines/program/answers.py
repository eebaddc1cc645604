"""What `PROGRAM recover` prints, and what that means: `have 7` or `torn 8 REASON` on a line of its own.

A transaction that the program itself calls torn is not there. Whether that is a fault is for the promise to say: only
`atomic` forbids it. A transaction in flight is the last that was begun, so a gap means that one which had been
acknowledged is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rig.contract.findings import Finding, FindingKind
from rig.engines.own import Grief
from rig.engines.program.promises import Promised

_LINE = re.compile(r"have ([0-9]{1,9})|torn ([0-9]{1,9})(?: (.*))?", re.ASCII)
_SHOWN_CHARS = 80
_TORN_SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """The transactions that are there whole, and those that are there in part, each with the reason."""

    have: frozenset[int]
    torn: Mapping[int, str]

    def __str__(self) -> str:
        have = ", ".join(_spans(self.have)) or "nothing"
        return f"have {have}; {self._torn_words}" if self.torn else f"have {have}"

    @property
    def _torn_words(self) -> str:
        words = [f"torn {number} {self.torn[number]}".strip() for number in sorted(self.torn)]
        more = [f"and {len(words) - _TORN_SHOWN} more"] if len(words) > _TORN_SHOWN else []
        return ", ".join([*words[:_TORN_SHOWN], *more])

    def finding(self, promised: str, transaction_count: int) -> Finding:
        """Return what the answer means for a program that is held against a promise."""
        if strange := sorted((self.have | self.torn.keys()) - set(range(1, transaction_count + 1))):
            words = f"it has transaction {strange[0]}, but they are numbered from 1 to {transaction_count}"
            return Finding(FindingKind.FOREIGN, detail=words)
        if self.torn and promised == Promised.ATOMIC:
            return Finding(FindingKind.TORN, detail=self._torn_words)
        whole = next(number for number in range(transaction_count + 1) if number + 1 not in self.have)
        if self.have and max(self.have) > whole:
            words = f"transaction {whole + 1} is missing before {max(self.have)}; {self}"
            return Finding(FindingKind.HOLE, detail=words)
        return Finding(FindingKind.PREFIX, recovered=whole, detail=self._torn_words)


def parsed(lines: Iterable[str]) -> Answer:
    """Return the answer; raise Grief naming the first line that is none, or that contradicts an earlier one."""
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
    return Answer(frozenset(have), torn)


def shown(line: str) -> str:
    """Return a line as it is quoted in messages."""
    return repr(line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "...")


def _spans(numbers: Iterable[int]) -> list[str]:
    """Return numbers as spans such as `1-5`."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]
