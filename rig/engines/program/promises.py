"""The promises that a program can be judged by, in the words of `--promise`; they combine."""

from __future__ import annotations

from enum import StrEnum
from itertools import combinations

_SEPARATOR = "_"


class Promised(StrEnum):
    """The promises, in the order in which they are spelled."""

    # Every acknowledged transaction is there.
    DURABLE = "durable"
    # The transactions that are there are the first ones, without a gap.
    PREFIX = "prefix"
    # No transaction is there in part.
    ATOMIC = "atomic"


# Every set of promises as ids spell it, for example `durable_atomic`.
PROMISES = tuple(
    _SEPARATOR.join(promises) for count in range(1, len(Promised) + 1) for promises in combinations(Promised, count)
)


def spelling_of(words: str) -> str:
    """Return promises with commas between them as ids spell them; an unknown word stays as it is."""
    given = {word.strip() for word in words.split(",")}
    unknown = sorted(given - set(Promised))
    return _SEPARATOR.join([*(promise for promise in Promised if promise in given), *unknown])


def promises_of(spelling: str) -> frozenset[str]:
    """Return the promises that an id names."""
    return frozenset(spelling.split(_SEPARATOR)) if spelling in PROMISES else frozenset()
