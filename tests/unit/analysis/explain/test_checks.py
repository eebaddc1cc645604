"""What a check of an explanation proves: counts before and after, and chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rig.analysis.explain.blame import Blame
from rig.analysis.explain.checks import EvidenceSource, StoryCheck, StoryChecker
from rig.analysis.explain.story import check_text
from rig.contract.results import VerdictKind
from tests.unit import samples


@dataclass(frozen=True)
class StoppedMachines:
    """Evidence whose machines are stopped once something is added."""

    added: Sequence[str] = ()

    @contextmanager
    def with_syncs(self, wanted: Sequence[str]) -> Iterator[StoppedMachines]:
        yield StoppedMachines(wanted)

    def plan(self, _span: tuple[int, int], states_max: int) -> list[Any]:
        return [SimpleNamespace(state=number) for number in range(states_max)]

    def judge(self, placed: Sequence[Any]) -> list[Any]:
        kind = VerdictKind.INCONCLUSIVE if self.added else VerdictKind.CORRUPT
        return [samples.verdict(kind, state=f"e{number}") for number, _ in enumerate(placed)]


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


def test_a_check_whose_states_could_not_be_judged_is_not_one_of_no_contents() -> None:
    checker = StoryChecker(cast("EvidenceSource", StoppedMachines()), VerdictKind.CORRUPT, (1, 1), 40)
    (check,) = checker.of_blames([cast("Blame", SimpleNamespace(missing=True, sync_to_add="log"))])
    assert (40, 0) == (check.count_before, check.count_after)
    assert not check.helps
    assert "a sync of log could not be tried: none of the crash states could be judged" == check_text(check)
