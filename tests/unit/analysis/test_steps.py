"""Steps to which a program gives names: their cuts are counted, and few of them prove nothing."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Judgement, Result, judge
from rig.analysis.judging.promises import promise_of
from rig.contract.results import MeasuredScenario
from tests.unit.samples import changed, measured_scenario, sqlite, verdict

WAL_FULL = sqlite("wal", "full")


def judged(measured: MeasuredScenario) -> Judgement:
    return judge(outcome(measured), promise_of(measured.scenario), 5)


def with_steps(hit_count: int, *, focus: str = "", is_saturated: bool = False) -> MeasuredScenario:
    """Return a scenario with two steps; few cuts hit one of them; a cut at its begin mark does not."""
    rare = [verdict(state=f"rare-{number}", entry=110 + number) for number in range(hit_count)]
    others = [verdict(state=f"other-{number}", entry=number) for number in range(1, 101)]
    measured = changed(measured_scenario(WAL_FULL, [*others, *rare, verdict(entry=105, state="begin")]), focus=focus)
    steps = [("often", 0, 50), ("often", 50, 100), ("rare", 105, 400)]
    plan = replace(measured.plan, is_saturated=is_saturated)
    return replace(measured, recording=replace(measured.recording, steps=steps), plan=plan)


def test_a_step_that_few_cuts_hit_is_inconclusive_with_what_to_do_and_counts_are_shown() -> None:
    kept = judged(with_steps(20))
    assert Result.KEPT is kept.result
    assert "steps: often, carried out 2 times and hit by 100 cuts; rare, carried out once and hit by 20" in str(kept)
    few = judged(with_steps(19))
    assert Result.INCONCLUSIVE is few.result
    (doubt,) = few.doubts
    assert "too few cuts in a step: rare, carried out once and hit by 19 cuts, 20 asked for; `--focus rare`" in doubt
    # Under a focus the other steps do not matter, and nothing is asked for where there is no more to see.
    assert "more --states" in str(judged(with_steps(19, focus="rare")).doubts)
    assert Result.KEPT is judged(with_steps(19, focus="often")).result
    assert Result.KEPT is judged(with_steps(19, is_saturated=True)).result
