"""The promises that a program can be judged by, in the words of `--promise`."""

from __future__ import annotations

from enum import StrEnum


class Promised(StrEnum):
    """The promises; each is judged by itself."""

    # Every acknowledged transaction is there.
    DURABLE = "durable"
    # The transactions that are there are the first ones, without a gap.
    PREFIX = "prefix"
    # No transaction is there in part.
    ATOMIC = "atomic"


PROMISES = tuple(str(one) for one in Promised)
