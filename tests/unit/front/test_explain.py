"""Which states `rig explain` chooses: the worst of each kind that breaks a promise."""

from __future__ import annotations

from rig.contract.results import MeasuredScenario, VerdictKind
from rig.front.verbs.explain import broken_states
from tests.unit.samples import measured_scenario, sqlite, verdict

LOST, TORN = VerdictKind.LOST_SUFFIX, VerdictKind.TORN


def measured(synchronous: str) -> MeasuredScenario:
    verdicts = [
        verdict(state="kept"), verdict(LOST, 2, "two", entry=5), verdict(LOST, 3, "three", entry=6),
        verdict(TORN, 0, "torn", entry=7), verdict(LOST, 9, "live", entry=0),
    ]  # fmt: skip
    return measured_scenario(sqlite("wal", synchronous), verdicts)


def test_damage_comes_before_loss_and_the_largest_loss_stands_for_all() -> None:
    assert ["torn", "three"] == [found.state for _, found in broken_states([measured("full")])]


def test_a_loss_that_the_promise_allows_counts_only_if_it_is_asked_for() -> None:
    assert ["torn"] == [found.state for _, found in broken_states([measured("normal")])]
    assert ["torn", "three"] == [found.state for _, found in broken_states([measured("normal")], any_loss=True)]


def test_nothing_is_broken_where_nothing_was_lost() -> None:
    assert [] == broken_states([measured_scenario(sqlite("wal", "full"), [verdict(state="kept")])], any_loss=True)


def test_a_control_comes_last_however_much_it_lost() -> None:
    mute = [verdict(VerdictKind.UNOPENABLE, state=f"e{acked}", acked=acked, entry=9) for acked in (0, 30, 12)]
    control = measured_scenario(sqlite("wal", "full"), mute, shim="eatmydata")
    found = broken_states([control, measured("full"), measured_scenario(sqlite("wal", "extra"), mute)])
    assert ["e30", "torn", "three", "e30"] == [worst.state for _, worst in found]
    assert "eatmydata" == found[-1][0].scenario.shim
