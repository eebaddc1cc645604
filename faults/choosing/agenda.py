"""Which members of a batch land: one agenda of choices, which alike epochs share.

A batch of n writes has 2**n subsets, and a budget takes a few for each epoch. Epochs of one phase
(`rig.faults.choosing.phases`) have the same number of writes of the same kinds, so a choice that one epoch has tried
need not come first in another. They share one agenda, and each epoch takes the next choice from it:

1. a few subsets that part every ordered pair: for any two writes one subset holds the first and not the second;
2. none, all, every write lost alone and every write landed alone;
3. every beginning and every end of the batch;
4. all other subsets of a small batch.

A long batch would take too long to enumerate. For such a batch 2 and 3 take turns, with seeded draws in between. If it
is also too long for a list of its members, 1 is left to the draws. A seed draws the order for each phase.

Sperner's theorem gives the fewest subsets for 1: k subsets part every pair both ways iff no member is in all the
subsets that another is in. That allows at most (k choose k/2) members, so 4 subsets do for 6 writes, 8 for 70.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

from rig.faults.choosing.selection import spread

# A batch with more subsets than this is sampled.
SUBSETS_MAX = 256
# A subset of a longer batch is named by the seed of its draw, because a list would be too long for an id.
LISTED_MEMBERS_MAX = 48

# The ranks of the members that land, as ranges; None for a draw, which each epoch makes for itself.
Choice = tuple[range, ...] | None


def is_small(count: int) -> bool:
    """Whether the agenda of `count` members holds every subset of them."""
    return 1 << count <= SUBSETS_MAX


def agenda(count: int, chance: random.Random) -> list[Choice]:
    """Return the choices of a batch of `count` members; `chance` draws their order."""
    if not is_small(count):
        return _sampled(count, chance)
    whole = tuple(range(count))
    alone = [(rank,) for rank in whole]
    lost = [whole[:rank] + whole[rank + 1 :] for rank in whole]
    singles = [(), whole, *alone, *lost]
    rest = [tuple(rank for rank in whole if mask >> rank & 1) for mask in range(2**count)]
    for part in (singles, rest):
        chance.shuffle(part)
    ends = [part for at in spread(count) for part in (whole[:at], whole[at:])]
    return [_listed(ranks) for ranks in dict.fromkeys([*pair_cover(count, chance), *singles, *ends, *rest])]


def pair_cover(count: int, chance: random.Random) -> list[tuple[int, ...]]:
    """Return the fewest subsets that part every ordered pair of members: one holds the first and not the second."""
    subset_count = 0
    while comb(subset_count, subset_count // 2) < count:
        subset_count += 1
    # Each member is in as many subsets as every other, but not in the same ones.
    inside = chance.sample(list(combinations(range(subset_count), subset_count // 2)), count)
    return [tuple(rank for rank in range(count) if number in inside[rank]) for number in range(subset_count)]


def in_turn(choices: Sequence[Choice], rank: int, alike_count: int) -> Iterator[Choice]:
    """Yield every choice once, in the order for the epoch of this rank among `alike_count` alike epochs.

    Together the epochs begin with the first choices of the agenda, then take the next ones, and so on.
    """
    taken: set[int] = set()
    at = rank
    for _ in choices:
        while at % len(choices) in taken:
            at += 1
        taken.add(at % len(choices))
        yield choices[at % len(choices)]
        at += alike_count


def _listed(ranks: Sequence[int]) -> Choice:
    return tuple(range(rank, rank + 1) for rank in ranks)


def _sampled(count: int, chance: random.Random) -> list[Choice]:
    ranks, whole = spread(count), range(count)
    first = chance.randrange(count)
    found = [_listed(part) for part in pair_cover(count, chance)] if count <= LISTED_MEMBERS_MAX else []
    found += [(), None, (whole,)]
    for rank in ranks[first:] + ranks[:first]:
        before, after = whole[:rank], whole[rank + 1 :]
        found += [(whole[: rank + 1],), (after,), None, (before, after), (whole[rank : rank + 1],)]
    return found
