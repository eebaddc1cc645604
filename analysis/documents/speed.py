"""Judges claims about speed from what `rig speed --json FILE` stored, by the ratio of two medians with its interval.

Fewer than ROUNDS_MIN rounds do not measure a claim. Neither does another amount of work: a first look at a smaller
scale or, where settings are compared, another load than the claim's (the ledger if the claim names none). A virtual
machine measures the same in each round, so two rounds that agree are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rig.analysis.documents.answer import Answer, decide, not_measured
from rig.analysis.documents.claim import Claim, ClaimVerdict, Speed
from rig.analysis.judging.speed import ratio
from rig.contract.scenario import DEFAULT_WORKLOAD
from rig.speed.speeds import RUNS_MIN, WHOLE, Speeds

ROUNDS_MIN = 10
# Runs of a virtual machine differ by nanoseconds, if at all; then one round says as much as ten.
_SPREAD_MAX = 1e-3


def judge(claim: Claim, measured: Sequence[Speeds]) -> Answer:
    """Return the answer to a claim about speed, from its experiment's last measurement on the wanted file system."""
    assert isinstance(claim.experiment, Speed)
    wanted = claim.experiment
    own = [measurement for measurement in measured if measurement.experiment == wanted.experiment]
    if not own:
        where = f"--fs {wanted.filesystem}" if wanted.filesystem else "--dir DIR"
        settings = wanted.experiment == "settings"
        what = f" {wanted.over} {wanted.under}" if settings else f" --document {wanted.experiment}"
        what += f", with the load {wanted.load}" if wanted.load else ""
        return not_measured(
            claim, f"no measurement was given: `rig speed {where}{what} --json FILE`, then --speed FILE"
        )
    there = [measurement for measurement in own if wanted.filesystem in {"", measurement.filesystem}]
    if not there:
        return not_measured(
            claim, f"it is about {wanted.filesystem}, and what was given was measured on {own[-1].filesystem}"
        )
    arms = (wanted.over, wanted.under)
    fitting = [
        measurement
        for measurement in there
        if all(map(measurement.counted_trials, arms)) and not _other_work(measurement, wanted)
    ]
    # A real disk is preferred, and among equals the last measurement.
    speeds = max(reversed(fitting or there), key=lambda measurement: not measurement.virtual)
    if missing := [arm for arm in arms if not speeds.counted_trials(arm)]:
        reason = next((why for what, why in speeds.absent.items() if missing[0] in what), "")
        return not_measured(claim, f"{missing[0]} was not measured{f': {reason}' if reason else ''}")
    if other := _other_work(speeds, wanted):
        return not_measured(claim, other)
    metric = wanted.metric or speeds.metrics[0].name
    count = min(sum(metric in trial.metrics for trial in speeds.counted_trials(arm)) for arm in arms)
    if speeds.virtual and (doubt := _doubt(speeds)):
        return not_measured(claim, doubt)
    if count < ROUNDS_MIN and not speeds.virtual:
        return not_measured(claim, f"{count} of {ROUNDS_MIN} rounds of {wanted.over} and {wanted.under} have {metric}")
    interval = ratio(speeds, wanted.over, wanted.under, metric)
    if interval is None:
        return not_measured(claim, f"{metric} of {wanted.under} is 0 in some round, and nothing compares with that")
    sync_ms = speeds.probe.sync_s * 1000
    figures = {"ratio": interval.value, "ratio_low": interval.low, "ratio_high": interval.high, "rounds": count}
    answer = decide(claim, {**figures, "sync_ms": sync_ms})
    if answer.verdict is ClaimVerdict.NOT_MEASURED:
        return replace(answer, why=f"{answer.why}; measure again on a quieter host or another disk")
    if machine := speeds.virtual:
        where = f"Measured in a virtual machine, on {machine['filesystem']} on the modelled disk {machine['device']}."
        return replace(answer, seen=f"{answer.seen} {where}")
    return answer


def _doubt(speeds: Speeds) -> str:
    """Return why the next run may show other virtual figures; empty if runs agree."""
    if speeds.run_count < RUNS_MIN:
        return f"{speeds.run_count} virtual run of an arm agrees with no other: --repeats {RUNS_MIN}"
    if speeds.spread > _SPREAD_MAX:
        return f"the virtual runs of an arm differ by {speeds.spread:.1g} of their time"
    return ""


def _other_work(speeds: Speeds, wanted: Speed) -> str:
    """Return how the work of the arms differs from what the claims are about; empty if it does not."""
    load = wanted.load or (WHOLE if speeds.document else DEFAULT_WORKLOAD)
    if others := [other_load for arm in (wanted.over, wanted.under) if (other_load := speeds.arms[arm].load) != load]:
        return f"it is about {load}, and what was given was measured with {others[0]}"
    return ""
