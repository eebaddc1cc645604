"""Which of an engine's own transactions are there, according to the engine, and what that means.

A transaction that is there in part counts as missing. The promise decides whether that is a fault. The transaction in
flight is the last that was begun, so a gap means that an acknowledged transaction is missing, unless the transaction
returned an error.

Several clients take turns in the numbering: client c has c, c + count, c + 2 count, and so on. Each has one transaction
in flight, so all this is true of each client by itself.
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

    def finding(
        self, transaction_count: int, failed: Collection[int] = (), *, is_atomic: bool = False, client_count: int = 1
    ) -> Finding:
        """Return what the answer means; with `is_atomic` no transaction may be there in part.

        Those that `failed` may be missing. The finding is the last one before which no other is, of each client.
        """
        if strange := sorted((self.have | self.torn.keys()) - set(range(1, transaction_count + 1))):
            words = f"it has transaction {strange[0]}, but they are numbered from 1 to {transaction_count}"
            return Finding(FindingKind.FOREIGN, detail=words)
        if self.torn and is_atomic:
            return Finding(FindingKind.TORN, detail=self._torn_words)
        counts = []
        for client in range(1, client_count + 1):
            own = range(client, transaction_count + 1, client_count)
            last = max(self.have.intersection(own), default=0)
            if missing := sorted(set(range(client, last, client_count)) - self.have - set(failed)):
                whose = f" of the same client, {client} of {client_count}" if client_count > 1 else ""
                words = f"transaction {missing[0]} is missing before {last}{whose}; {self}"
                return Finding(FindingKind.HOLE, detail=words)
            counts.append(own.index(last) + 1 if last else 0)
        return Finding(
            FindingKind.PREFIX,
            recovered=sum(counts),
            detail=self._torn_words,
            is_torn=bool(self.torn),
            of_clients=tuple(counts) if client_count > 1 else (),
        )


def _spans(numbers: Iterable[int]) -> list[str]:
    """Return numbers as spans such as `1-5`."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]
