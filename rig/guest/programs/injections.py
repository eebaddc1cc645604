"""Plan the strikes of a recording under error faults: at which transactions requests fail, and when they recover.

A plan is a pure function of the seed, so it can be shown and made again. A strike begins at one of three stages of a
transaction. `begin`: before it, so the journal or the write-ahead log notices first. `midst`: at some instant during
it, which may hit any step of the commit, or none. `checkpoint`: after it has been committed undisturbed, so that the
strike hits a checkpoint. This stage becomes `begin` for an engine without checkpoints, and also under `diskfull-data`
if a checkpoint needs no space for data.
After an error the program either rolls back and continues over the same connection, or closes it and reopens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from rig.contract.injections import Injection


class Stage(StrEnum):
    """Where in a transaction a strike begins."""

    BEGIN = "begin"
    MIDST = "midst"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Strike:
    """One outage."""

    # The transaction at which it begins.
    number: int
    stage: Stage
    # True if the program reopens the database after the error; otherwise it continues over the same connection.
    reopens: bool
    # Attempts at a transaction or checkpoint until the strike is over, whether they failed or not.
    attempts_max: int
    # For `midst`: how far into the transaction, as a share of the time that the last one took.
    share: float
    # For a full disk: the free blocks at the first attempt, and how many are added after each failure.
    free_blocks: int = 0
    free_blocks_step: int = 0


# Transactions between strikes. The database of the ledger stops growing after ENTRY_LIFE, so strikes that need it to
# grow come early and close together.
_APART = (5, 8)
_APART_GROWING = (3, 4)
_GROWING_UNTIL = 24
_STAGES = {
    Injection.READ: (Stage.BEGIN, Stage.CHECKPOINT),
    Injection.DISKFULL_LOG: (Stage.BEGIN,),
    Injection.DISKFULL_DATA: (Stage.CHECKPOINT,),
}
# Attempts until a strike is over; FSYNC always ends after its only error.
_ATTEMPTS = {Injection.FSYNC: (2, 2), Injection.DISKFULL_DATA: (20, 20)}


def strikes(injection: Injection, seed: int, transaction_count: int) -> tuple[Strike, ...]:
    """Return the strikes of a recording, in order; they go through all stages, shuffled, before a stage repeats."""
    choice = random.Random(f"{injection} {seed}")
    is_growing = injection is Injection.DISKFULL_DATA
    last = min(transaction_count, _GROWING_UNTIL) if is_growing else transaction_count
    drawn: list[Strike] = []
    stages: list[Stage] = []
    # Each stage alternates between reopening and continuing over the same connection.
    reopens = {stage: choice.random() < 0.5 for stage in Stage}
    number = choice.randint(2, 3)
    while number <= last:
        if not stages:
            stages = list(_STAGES.get(injection, tuple(Stage)))
            choice.shuffle(stages)
        stage = stages.pop()
        reopens[stage] = not reopens[stage]
        attempts_max = choice.randint(*_ATTEMPTS.get(injection, (2, 4)))
        free_blocks = 0 if is_growing else choice.randint(0, 3)
        share = round(choice.random(), 3)
        drawn.append(Strike(number, stage, reopens[stage], attempts_max, share, free_blocks, int(is_growing)))
        number += choice.randint(*(_APART_GROWING if is_growing else _APART))
    return tuple(drawn)
