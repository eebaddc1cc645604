"""Which of an engine's own transactions are there, according to the engine, and what that means.

A transaction that is there in part counts as missing. The promise decides whether that is a fault. The transaction in
flight is the last that was begun, so a gap means that an acknowledged transaction is missing, unless the transaction
returned an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rig.contract.findings import Finding, FindingKind

_TORN_SHOWN = 3


@dataclass(frozen=True)
class Inventory:
    """The transactions that are there whole, and those that are there in part, each with the reason."""

    have: frozenset[int]
    torn: Mapping[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        have = ", ".join(_spans(self.have)) or "nothing"
        return f"have {have}; {self._torn_words}" if self.torn else f"have {have}"

    @property
    def _torn_words(self) -> str:
        words = [f"torn {number} {self.torn[number]}".strip() for number in sorted(self.torn)]
        more = [f"and {len(words) - _TORN_SHOWN} more"] if len(words) > _TORN_SHOWN else []
        return ", ".join([*words[:_TORN_SHOWN], *more])

    def finding(self, transaction_count: int, failed: Collection[int] = (), *, is_atomic: bool = False) -> Finding:
        """Return what the answer means; with `is_atomic` no transaction may be there in part.

        Those that `failed` may be missing. The finding is the last one before which no other is.
        """
        if strange := sorted((self.have | self.torn.keys()) - set(range(1, transaction_count + 1))):
            words = f"it has transaction {strange[0]}, but they are numbered from 1 to {transaction_count}"
            return Finding(FindingKind.FOREIGN, detail=words)
        if self.torn and is_atomic:
            return Finding(FindingKind.TORN, detail=self._torn_words)
        last = max(self.have, default=0)
        if missing := sorted(set(range(1, last)) - self.have - set(failed)):
            words = f"transaction {missing[0]} is missing before {last}; {self}"
            return Finding(FindingKind.HOLE, detail=words)
        return Finding(FindingKind.PREFIX, recovered=last, detail=self._torn_words, is_torn=bool(self.torn))


def _spans(numbers: Iterable[int]) -> list[str]:
    """Return numbers as spans such as `1-5`."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]
