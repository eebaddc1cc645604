"""The seeds of the lives of a database: each has one of its own, so what is made again looks different.

The lives of a user's program have one seed.
"""

from __future__ import annotations

# Far enough from each other that no life has the seed of another scenario's life.
_STEP = 1_000_003


def seed_of_life(seed: int, rank: int) -> int:
    """Return the seed of a life; the first has rank 0."""
    return seed + rank * _STEP


def seed_at(seed: int, lives: tuple[int, ...], number: int) -> int:
    """Return the seed of the life that carried out a transaction: the last that began with fewer.

    `lives` says how many transactions the database showed at the end of each life but the last.
    """
    return seed_of_life(seed, max((rank for rank, shown in enumerate(lives, 1) if shown < number), default=0))
