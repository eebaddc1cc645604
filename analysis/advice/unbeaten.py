"""Which of several settings no other beats. Choose from these, whatever a loss is worth to you.

A setting beats another if it is at least as fast and loses less, or faster and loses no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Thing = TypeVar("_Thing")


def unbeaten(things: Sequence[_Thing], merit: Callable[[_Thing], tuple[float, Any]]) -> tuple[_Thing, ...]:
    """Return the things that no other beats, in their order; `merit` gives speed and loss, which can be ordered."""
    merits = [merit(thing) for thing in things]
    return tuple(
        thing for thing, own in zip(things, merits, strict=True) if not any(_beats(each, own) for each in merits)
    )


def _beats(one: tuple[float, Any], other: tuple[float, Any]) -> bool:
    return one[0] >= other[0] and one[1] <= other[1] and one != other
