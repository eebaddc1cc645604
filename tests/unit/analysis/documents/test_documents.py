"""A document whose workloads are with several engines is measured as one: the arms of all, each by its own engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.documents.replications import replications, s3
from rig.analysis.show.speedtable import print_speeds
from rig.contract.errors import UsageError
from rig.engines import engine_named
from rig.front.terminal import standard_output
from rig.front.verbs.speed import _of_document
from rig.speed import session
from rig.speed.trials.replication import NEEDED_BYTES_MIN, Metric, Replication
from rig.speed.trials.trial import TrialOrders
from tests.unit.analysis.show.test_speed import speeds_of

BESIDE = replace(s3.REPLICATION, engine="lmdb", arms=("another",), bases={}, figures=(), absent={"a row": "no figure"})


def plan_of(first: Replication, second: Replication, scale: float = 1.0) -> session.SpeedPlan:
    return session.of_document([first, second], 7, scale)


def test_the_arms_of_all_are_measured_each_by_its_own_engine_and_compared_with_its_own_base() -> None:
    plan = plan_of(s3.REPLICATION, BESIDE)
    assert [*s3.REPLICATION.arms, "another"] == list(plan.arms)
    orders, facts = plan.arms["another"]
    assert ("rig.engines.lmdb", "lmdb", "another") == (orders.engine_module, facts.engine, facts.base)
    orders, facts = plan.arms["wal"]
    assert ("rig.engines.sqlite", "sqlite", "delete") == (orders.engine_module, facts.engine, facts.base)
    assert list(s3.REPLICATION.figures) == list(plan.figures)
    assert {**s3.REPLICATION.absent, "a row": "no figure"} == plan.absent


def test_a_metric_that_only_one_has_is_shown_for_its_arms_alone(capsys: pytest.CaptureFixture[str]) -> None:
    more = Metric("more", "x more", more_is_better=True)
    plan = plan_of(s3.REPLICATION, replace(BESIDE, metrics=(*BESIDE.metrics, more)))
    assert [*s3.REPLICATION.metrics, more] == list(plan.metrics)
    found = speeds_of({"slow": [10, 11], "fast": [30, 33]})
    trials = [replace(one, metrics={**one.metrics, "more": 77.7}) if one.arm == "fast" else one for one in found.trials]
    print_speeds(replace(found, metrics=[*found.metrics, more], trials=trials), standard_output())
    (fast,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fast") and "77.7" in line]
    assert ["77.7", "-"] == fast.split()[-2:]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            replace(BESIDE, arms=("wal",)),
            "its arm wal is one thing in sqlite, and another in lmdb",
        ),
        (
            replace(BESIDE, metrics=(replace(BESIDE.metrics[0], unit="min"),)),
            f"its metric {BESIDE.metrics[0].name} is one thing in sqlite",
        ),
        (replace(BESIDE, file="005_other.txt"), "the document S3 cannot be measured: its file is one thing"),
    ],
)
def test_workloads_that_contradict_each_other_are_not_measured(second: Replication, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_of(s3.REPLICATION, second)


def test_a_smaller_scale_needs_less_space_but_never_none() -> None:
    large = replace(BESIDE, needed_bytes=16 * NEEDED_BYTES_MIN)
    found = [plan_of(s3.REPLICATION, large, scale).needed_bytes for scale in (1.0, 0.5, 0.001)]
    assert [16 * NEEDED_BYTES_MIN, 8 * NEEDED_BYTES_MIN, NEEDED_BYTES_MIN] == found


def test_every_document_can_be_measured_with_its_own_figures_first() -> None:
    names = {one.name for one in replications()}
    assert {"S0", "S1", "S2", "S3", "S4"} <= names
    for name in names:
        plan = _of_document(name, 1, 1.0)
        (first, *_) = plan.arms
        assert any(first in {figure.arm, figure.base} for figure in plan.figures)
    assert ["rocksdb", "leveldb"] == list(
        dict.fromkeys(facts.engine for _, facts in _of_document("S4", 1, 1).arms.values())
    )


def test_an_arm_is_carried_out_by_its_own_workload() -> None:
    for one in replications():
        module = one.carry_out.__module__
        assert one is TrialOrders(engine_named(one.engine).module, 1, {}, workload=module, arm=one.arms[0]).replication


def test_chosen_arms_bring_along_those_that_they_are_compared_with() -> None:
    plan = session.narrow(_of_document("S4", 1, 1.0), ["fillrandom-wal", "leveldb-fills*"])
    # The base of one may be compared with another.
    assert ["fillseq-nowal", "fillrandom-nowal", "fillrandom-wal", "leveldb-fillseq"] == list(plan.arms)
    assert all(facts.base in plan.arms for _, facts in plan.arms.values())
    with pytest.raises(UsageError, match="S4 has no arm 'fillwal'; it has: fillseq-nowal, "):
        session.narrow(_of_document("S4", 1, 1.0), ["fill*", "fillwal"])
