"""Of several settings those stay that no other beats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.advice.unbeaten import unbeaten

_MERITS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(_MERITS)
def test_what_is_left_out_is_beaten_by_one_that_stays_and_nobody_who_stays_is_beaten(
    merits: list[tuple[int, int]],
) -> None:
    left = unbeaten(merits, lambda one: one)
    for speed, loss in merits:
        better = [one for one in left if one[0] >= speed and one[1] <= loss and one != (speed, loss)]
        assert ((speed, loss) in left) is (not better)


def test_equals_do_not_beat_each_other_and_the_order_stays() -> None:
    assert ("b", "a", "a") == unbeaten(
        ["b", "c", "a", "a"], lambda one: {"a": (1.0, 0), "b": (2.0, 1), "c": (1.0, 1)}[one]
    )
