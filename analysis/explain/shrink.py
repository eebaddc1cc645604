"""The smallest sets of atoms that still break a promise: delta debugging, with many candidates judged at a time.

Any atoms will do: here they are the writes, or parts of writes, that a power cut may lose. A judge says for each
candidate set whether it is broken. It gets candidates in batches, because a machine that judges them takes longer to
start than to judge one. No set is judged twice.

Promises: every set returned was judged, and is broken. If a single atom is enough and all were tried, all single atoms
that are enough are returned. Otherwise no atom can be left out of the set returned, unless time ran out, in which case
`is_minimal` is False. Left out: a set of another size than the smallest found; a smaller set that shares nothing with
the first, except for pairs among few atoms.

The algorithm is ddmin: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

A = TypeVar("A")
# Says for each candidate whether it is broken.
Judge = Callable[[Sequence[frozenset[A]]], Sequence[bool]]

# Single atoms are all tried up to this many, unless the caller says otherwise, and pairs of atoms among this many.
SINGLES_MAX, PAIRS_AMONG_MAX = 256, 20
_PAIR = 2


@dataclass(frozen=True)
class Shrunk(Generic[A]):
    """What is enough to break a promise: sets of one size, each by itself."""

    sets: tuple[frozenset[A], ...]
    judged_count: int
    # Whether no atom can be left out of any of the sets.
    is_minimal: bool


def smallest(
    atoms: Sequence[A],
    start: frozenset[A],
    judge: Judge[A],
    may_go_on: Callable[[], bool] = lambda: True,
    singles_max: int = SINGLES_MAX,
) -> Shrunk[A]:
    """Return the smallest sets that are broken, from a set `start` among `atoms` that is known to be broken.

    `may_go_on` is asked before each batch; once it returns False, the best set so far is returned. Single atoms are all
    tried if there are at most `singles_max`.
    """
    court = _Court(judge, start)
    if court.first_broken([frozenset()]) is not None:
        return Shrunk((frozenset(),), court.judged_count, is_minimal=True)
    if len(atoms) <= singles_max and may_go_on():
        singles = [frozenset((atom,)) for atom in atoms]
        if broken := court.broken_sets(singles):
            return Shrunk(tuple(broken), court.judged_count, is_minimal=True)
    rest, is_minimal = _reduce([atom for atom in atoms if atom in start], court, may_go_on)
    if len(rest) > _PAIR and len(atoms) <= PAIRS_AMONG_MAX and may_go_on():
        pairs = [frozenset(pair) for pair in combinations(atoms, _PAIR)]
        if broken := court.broken_sets(pairs):
            return Shrunk(tuple(broken), court.judged_count, is_minimal=True)
    return Shrunk((frozenset(rest),), court.judged_count, is_minimal)


class _Court(Generic[A]):
    """Judges each set once."""

    def __init__(self, judge: Judge[A], start: frozenset[A]) -> None:
        self._judge = judge
        self._known = {start: True}
        self.judged_count = 0

    def broken_sets(self, candidates: Sequence[frozenset[A]]) -> list[frozenset[A]]:
        """Return the candidates that are broken."""
        fresh = [candidate for candidate in dict.fromkeys(candidates) if candidate not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._judge(fresh), strict=True))
            self.judged_count += len(fresh)
        return [candidate for candidate in candidates if self._known[candidate]]

    def first_broken(self, candidates: Sequence[frozenset[A]]) -> frozenset[A] | None:
        """Return the first candidate that is broken."""
        return next(iter(self.broken_sets(candidates)), None)


def _reduce(current: list[A], court: _Court[A], may_go_on: Callable[[], bool]) -> tuple[list[A], bool]:
    """Return a broken set from which no atom can be left out, and True; a larger one and False if time ran out."""
    part_count = 2
    while len(current) > 1:
        if not may_go_on():
            return current, False
        parts = list(_parts(current, part_count))
        wholes = [frozenset(part) for part in parts] if part_count < len(current) else []
        rests = [frozenset(current) - frozenset(part) for part in parts]
        smaller = court.first_broken([*wholes, *rests])
        if smaller is None:
            if part_count == len(current):
                return current, True
            part_count = min(2 * part_count, len(current))
            continue
        part_count = 2 if smaller in wholes else max(part_count - 1, 2)
        current = [atom for atom in current if atom in smaller]
        part_count = min(part_count, len(current))
    return current, True


def _parts(atoms: Sequence[A], count: int) -> Iterator[Sequence[A]]:
    """Yield a sequence in this many parts, none of them empty."""
    for number in range(count):
        begin, end = number * len(atoms) // count, (number + 1) * len(atoms) // count
        yield atoms[begin:end]
