"""Two kinds of machines must show the same, or no verdict of the scenario counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rig.campaign.comparison import Comparison
from rig.contract.errors import DisagreementError
from rig.contract.findings import Finding, FindingKind
from rig.faults import CrashState
from rig.planning import matrix

(SCENARIO,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
STATE = cast("CrashState", SimpleNamespace(id="e1.f0"))


def compare(first: Finding, again: Finding) -> None:
    comparison = Comparison()
    comparison.note(0, first)
    comparison.require_equal(SCENARIO, [STATE], [again])


def test_an_engine_that_does_not_open_the_same_files_may_refuse_or_die() -> None:
    refused, died = (Finding(kind, files="f") for kind in (FindingKind.UNOPENABLE, FindingKind.DIED))
    compare(refused, died)
    compare(died, refused)


@pytest.mark.parametrize(
    "again",
    [
        Finding(FindingKind.PREFIX, 3, files="f"),
        Finding(FindingKind.CORRUPT, files="f"),
        Finding(FindingKind.DIED, files="other"),
    ],
)
def test_everything_else_must_be_the_same(again: Finding) -> None:
    with pytest.raises(DisagreementError, match=r"disagree on e1\.f0"):
        compare(Finding(FindingKind.UNOPENABLE, files="f"), again)
    compare(again, again)
