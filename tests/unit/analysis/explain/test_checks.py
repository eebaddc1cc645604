"""What a check of an explanation proves: counts before and after, and chance."""

from __future__ import annotations

import math

import pytest

from rig.analysis.explain.checks import StoryCheck
from rig.analysis.explain.story import check_text


def test_a_check_of_few_states_afterwards_proves_nothing() -> None:
    assert not StoryCheck(("log",), 3, 9, 0, 0).helps
    assert not StoryCheck(("log",), 3, 9, 0, 1).helps
    assert StoryCheck(("log",), 3, 9, 0, 9).helps
    assert not StoryCheck(("log",), 3, 9, 0, 9, has_witness=False).helps


def test_a_check_that_chance_may_explain_says_how_likely_that_is() -> None:
    assert check_text(StoryCheck(("log",), 1, 4, 0, 6)).endswith(
        "without it, 1 of 4 (chance alone would do this in 40% of such checks)"
    )
    assert check_text(StoryCheck(("log",), 4, 6, 0, 7)).endswith("without it, 4 of 6")


def test_chance_is_that_of_drawing_all_broken_contents_from_those_before() -> None:
    assert pytest.approx(27 / 49) == StoryCheck(("log",), 1, 27, 0, 22).chance
    assert pytest.approx(1 / 286) == StoryCheck(("log",), 3, 3, 0, 10).chance
    # Of eight broken ones among twenty, at most one among the eleven.
    wanted = (math.comb(9, 8) + math.comb(9, 7) * 11) / math.comb(20, 8)
    assert pytest.approx(wanted) == StoryCheck(("log",), 7, 9, 1, 11).chance
    assert StoryCheck(("log",), 7, 9, 1, 11).helps_in_part
    assert not StoryCheck(("log",), 4, 9, 4, 11).helps_in_part
    assert not StoryCheck(("log",), 7, 9, 0, 11).helps_in_part
    assert not StoryCheck(("log",), 0, 9, 0, 11).helps_in_part
