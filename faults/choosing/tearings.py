"""Which writes of a batch are torn, where, and what else landed: one agenda, which alike epochs share.

The plainest tear comes first, because checksums are there for it. A write is torn in two: its beginning landed and its
end did not, or the other way round.

1. Each write torn between sectors that it changes, all others landed; each torn, all others lost; then both again with
   the other part. The first two are the plain tears that `rig.faults.choosing.paircoverage` counts for each write. Half
   of these tears are in the middle of what the write changes, and each epoch draws the places of its own.
2. Each write torn so, with the writes before it, or with those after it.
3. Two writes torn, the others landed or lost.
4. Each write torn at every boundary of sectors in a block, the others landed or lost.

Between them come seeded draws of all units of the batch, one for three. A long batch has only 1, 2 and the draws. The
seed draws the order of the writes, and which half comes first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations, pairwise

# Longer batches have no pairs and no boundaries.
_LISTED_WRITES_MAX = 16
_BLOCK_SECTORS = 8
# Choices from the list for each seeded draw.
_LISTED_FOR_A_DRAW = 3


@dataclass(frozen=True)
class Half:
    """A write torn in two, by its rank in the batch, and which part of it landed."""

    rank: int
    is_end: bool
    # The sectors before the tear; 0: wherever the epoch draws it.
    sector_count: int = 0


@dataclass(frozen=True)
class Tearing:
    """Writes that are torn, and the ranks of those that landed whole, as ranges."""

    halves: tuple[Half, ...]
    whole: tuple[range, ...]


def tearings(count: int, chance: random.Random) -> list[Tearing | None]:
    """Return the agenda of a batch of `count` writes; None stands for a draw, which each epoch makes for itself."""
    ranks = chance.sample(range(count), count)
    ends = [chance.random() < 0.5 for _ in ranks]
    choices = [
        _tearing_of(count, Half(rank, is_end != is_other), is_others_landed=is_landed)
        for is_other in (False, True)
        for is_landed in (True, False)
        for rank, is_end in zip(ranks, ends, strict=True)
    ]
    for rank, is_end in zip(ranks, ends, strict=True):
        half = (Half(rank, is_end),)
        choices += [Tearing(half, _ranges(range(rank))), Tearing(half, _ranges(range(rank + 1, count)))]
    if count <= _LISTED_WRITES_MAX:
        pairs = list(combinations(ranks, 2))
        boundaries = [
            (rank, at, is_end) for rank in ranks for at in range(1, _BLOCK_SECTORS) for is_end in (False, True)
        ]
        for part in (pairs, boundaries):
            chance.shuffle(part)
        for number, pair in enumerate(pairs):
            both = (Half(rank, chance.random() < 0.5) for rank in sorted(pair))
            choices.append(_tearing_of(count, *both, is_others_landed=number % 2 == 0))
        for number, (rank, at, is_end) in enumerate(boundaries):
            choices.append(_tearing_of(count, Half(rank, is_end, at), is_others_landed=number % 2 == 0))
    listed = list(dict.fromkeys(choices))
    return [
        choice
        for begin in range(0, len(listed), _LISTED_FOR_A_DRAW)
        for choice in (*listed[begin : begin + _LISTED_FOR_A_DRAW], None)
    ]


def _tearing_of(count: int, *halves: Half, is_others_landed: bool) -> Tearing:
    if not is_others_landed:
        return Tearing(halves, ())
    bounds = [-1, *(half.rank for half in halves), count]
    parts = [range(before + 1, after) for before, after in pairwise(bounds)]
    return Tearing(halves, tuple(part for part in parts if part))


def _ranges(part: range) -> tuple[range, ...]:
    return (part,) if part else ()
