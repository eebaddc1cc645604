"""Which members of a batch land: one agenda of choices, which alike epochs share.

A batch of n writes has 2**n subsets, and a budget takes a few for each epoch. Epochs of one phase
(`rig.faults.choosing.phases`) have the same number of writes of the same kinds, so a choice that one epoch has tried
need not come first in another. They share one agenda, and the epoch whose turn it is takes the next choice from it that
it has not had (`Turns`):

1. a few subsets that part every ordered pair: for any two writes one subset holds the first and not the second. Each
   has about half of the writes. Then one write lost alone, one landed alone, none, and all. The seed draws which of all
   these choices comes first, so that the first states of a plan are of all these kinds;
2. every other write lost alone and landed alone;
3. every beginning and every end of the batch;
4. all other subsets of a small batch.

A long batch would take too long to enumerate. For such a batch 2 and 3 take turns, with seeded draws in between. If it
is also too long for a list of its members, seeded draws take the place of 1. A seed draws the order for each phase.

Sperner's theorem gives the fewest subsets for 1: k subsets part every pair both ways iff no member is in all the
subsets that another is in. That allows at most (k choose k/2) members, so 4 subsets do for 6 writes, 8 for 70.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Generic, TypeVar

from rig.faults.choosing.selection import spread

_T = TypeVar("_T")

# A batch with more subsets than this is sampled.
SUBSETS_MAX = 256
# A subset of a longer batch is named by the seed of its draw, because a list would be too long for an id.
LISTED_MEMBERS_MAX = 48
# As many as a cover of the longest listed batch has.
_DRAWN_HALVES = 8

# The ranks of the members that land, as ranges; None for a draw, which each epoch makes for itself.
Choice = tuple[range, ...] | None


def is_small(count: int) -> bool:
    """Whether the agenda of `count` members holds every subset of them."""
    return 1 << count <= SUBSETS_MAX


def agenda(count: int, chance: random.Random) -> list[Choice]:
    """Return the choices of a batch of `count` members; `chance` draws their order."""
    if not is_small(count):
        return _sample(count, chance)
    whole = tuple(range(count))
    alone = [(rank,) for rank in whole]
    lost = [whole[:rank] + whole[rank + 1 :] for rank in whole]
    for part in (alone, lost):
        chance.shuffle(part)
    singles = chance.sample([*alone, *lost], 2 * count)
    rest = [tuple(rank for rank in whole if mask >> rank & 1) for mask in range(2**count)]
    chance.shuffle(rest)
    ends = [part for at in spread(count) for part in (whole[:at], whole[at:])]
    first = _beginning(pair_cover(count, chance), [*lost[:1], (), *alone[:1], whole], chance)
    return [_choice_of(ranks) for ranks in dict.fromkeys([*first, *singles, *ends, *rest])]


def pair_cover(count: int, chance: random.Random) -> list[tuple[int, ...]]:
    """Return the fewest subsets that part every ordered pair of members: one holds the first and not the second."""
    subset_count = 0
    while comb(subset_count, subset_count // 2) < count:
        subset_count += 1
    # Each member is in as many subsets as every other, but not in the same ones.
    inside = chance.sample(list(combinations(range(subset_count), subset_count // 2)), count)
    return [tuple(rank for rank in range(count) if number in inside[rank]) for number in range(subset_count)]


class Turns(Generic[_T]):
    """An agenda and the place that its epochs have reached together."""

    def __init__(self, agenda: Sequence[_T]) -> None:
        self._agenda = agenda
        self._at = 0

    def of_one_epoch(self) -> Iterator[_T]:
        """Yield every choice once, each time the next one on the agenda that this epoch has not had."""
        left = set(range(len(self._agenda)))
        while left:
            at = self._at
            while at not in left:
                at = (at + 1) % len(self._agenda)
            left.remove(at)
            self._at = (at + 1) % len(self._agenda)
            yield self._agenda[at]


def _beginning(halves: Sequence[_T], others: Sequence[_T], chance: random.Random) -> list[_T]:
    """Return the choices of both kinds, one of them drawn to come first: of `halves` as often as of `others`."""
    in_order = [*halves, *others]
    first = chance.choice(chance.choice([part for part in (halves, others) if part]))
    return [first, *(choice for choice in in_order if choice is not first)]


def _choice_of(ranks: Sequence[int]) -> Choice:
    return tuple(range(rank, rank + 1) for rank in ranks)


def _sample(count: int, chance: random.Random) -> list[Choice]:
    ranks, whole = spread(count), range(count)
    begin, lost, alone = (chance.randrange(count) for _ in range(3))
    is_listed = count <= LISTED_MEMBERS_MAX
    halves = [_choice_of(part) for part in pair_cover(count, chance)] if is_listed else [None] * _DRAWN_HALVES
    others: list[Choice] = [(whole[:lost], whole[lost + 1 :]), (), (whole[alone : alone + 1],), (whole,)]
    choices = _beginning(halves, others, chance)
    for rank in ranks[begin:] + ranks[:begin]:
        before, after = whole[:rank], whole[rank + 1 :]
        choices += [(whole[: rank + 1],), (after,), None, (before, after), (whole[rank : rank + 1],)]
    return choices
