"""Advice never goes against a wish, never rests on thin evidence, and never leaves a faster setting unsaid."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.advice.advice import Advice, Standing, Wishes, advise
from rig.analysis.advice.candidates import Piece
from rig.analysis.dossiers import Keeps
from rig.analysis.judging.outcome import Result, summarise
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from tests.unit.samples import (
    SECOND_NS,
    changed,
    controls_that_fire,
    durable,
    matrix,
    measured_scenario,
    sqlite,
    verdict,
)

FAULTS = ("powercut", "torn")
EXPOSURE_MIN = 3
NOTHING_LOST = Wishes(lost_max=0, no_corruption=True)
WAL_FULL, WAL_NORMAL = sqlite("wal", "full"), sqlite("wal", "normal")
OFFERED = [WAL_NORMAL, WAL_FULL, sqlite("delete", "full"), sqlite("delete", "normal")]


def pieces_of(scenarios: Sequence[MeasuredScenario], run: str = "runs/a") -> list[Piece]:
    return [Piece(run, "quick", row) for row in summarise(scenarios, EXPOSURE_MIN).rows]


def of_both(settings: Mapping[str, str], lost: int = 0, speed: int = 100, count: int = 9) -> list[MeasuredScenario]:
    """A setting under both faults, with this many file contents; in one the last transactions are lost."""
    rows = durable(count - bool(lost)) + ([verdict(VerdictKind.LOST_SUFFIX, lost, "lost")] if lost else [])
    return [measured_scenario(settings, rows, fault, busy_virtual_ns=40 * SECOND_NS // speed) for fault in FAULTS]


def controls() -> list[MeasuredScenario]:
    return [one for fault in FAULTS for one in controls_that_fire(fault)]


verdicts = st.lists(
    st.builds(
        verdict,
        kind=st.sampled_from([VerdictKind.LOST_SUFFIX] * 4 + [VerdictKind.DURABLE, VerdictKind.TORN, VerdictKind.HANG]),
        lost=st.integers(1, 3),
        state=st.sampled_from(["e1", "e2"]),
        instant_weight_ns=st.sampled_from([0, 1]),
    ),
    max_size=2,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Piece]:
    """Draw up to two runs, with or without controls, each with some settings under some of the faults."""
    found: list[Piece] = []
    for name in ("runs/a", "runs/b")[: draw(st.integers(1, 2))]:
        scenarios = controls() if draw(st.integers(0, 7)) else []
        for settings in OFFERED:
            for fault in FAULTS:
                if draw(st.integers(0, 9)):
                    rows = durable(draw(st.sampled_from([1, 3, 4, 5]))) + draw(verdicts)
                    more = draw(st.sampled_from([0] * 7 + [1]))
                    speed = draw(st.sampled_from([100, 101, 200, 400]))
                    scenarios.append(
                        measured_scenario(
                            settings,
                            rows,
                            fault,
                            state_count=len(rows) + more,
                            busy_virtual_ns=40 * SECOND_NS // speed,
                        )
                    )
        found += pieces_of(scenarios, name)
    return found


wishes = st.builds(
    Wishes,
    lost_max=st.one_of(st.none(), st.integers(0, 3)),
    lost_s_max=st.one_of(st.none(), st.sampled_from([0.0, 0.6, 2.0])),
    no_corruption=st.just(True),
    exposure_min=st.one_of(st.none(), st.integers(1, 6)),
)


def admissible(found: Sequence[Piece], wished: Wishes) -> dict[str, float]:
    """Return the settings that may be advised, each with its speed, by looking at every verdict again."""
    speeds = {}
    for settings in OFFERED:
        own = [one for one in found if one.row.outcome.scenario.settings == settings]
        if all(_is_proven(own, fault, wished) for fault in FAULTS) and not any(_is_against(one, wished) for one in own):
            speeds["_".join(settings.values())] = min(one.row.outcome.transactions_per_s or 0 for one in own)
    return speeds


def _is_proven(own: Sequence[Piece], fault: str, wished: Wishes) -> bool:
    rows = [one.row for one in own if one.row.outcome.scenario.fault == fault]
    kept = [one for one in rows if one.judgement.result is Result.KEPT]
    return any(len({v.files for v in _verdicts(one.outcome.measured)}) >= (wished.exposure_min or 0) for one in kept)


def _verdicts(scenario: MeasuredScenario) -> list[Verdict]:
    return [one for one in scenario.verdicts if not one.kind.is_infrastructure]


def _is_against(piece: Piece, wished: Wishes) -> bool:
    promise = piece.row.promise
    assert promise is not None
    zero = 0 in {wished.lost_max, wished.lost_s_max}
    if piece.row.judgement.result is Result.BROKEN or not promise.atomic:
        return True
    if zero and promise.keeps is not Keeps.NOTHING_LOST:
        return True
    for one in piece.row.outcome.measured.verdicts:
        if one.kind is VerdictKind.HANG:
            continue
        if one.kind is VerdictKind.TORN:
            return True
        if wished.lost_max is not None and one.lost > wished.lost_max:
            return True
        if wished.lost_s_max is not None and one.lost_virtual_ns > wished.lost_s_max * SECOND_NS:
            return True
    return False


@given(runs(), wishes)
def test_what_is_advised_goes_against_no_wish_is_proven_and_no_admissible_setting_is_faster(
    found: list[Piece], wished: Wishes
) -> None:
    advice, speeds = advise(found, wished, FAULTS), admissible(found, wished)
    assert {one.candidate.name for one in advice.assessed if one.standing is Standing.MEETS} == set(speeds)
    if not speeds:
        assert advice.best is None
        return
    assert advice.best is not None
    assert advice.best.name in speeds
    assert speeds[advice.best.name] == advice.best.transactions_per_s
    assert 0.98 * max(speeds.values()) <= speeds[advice.best.name]


@given(runs(), wishes, st.randoms(use_true_random=False))
def test_the_order_of_runs_and_scenarios_never_matters(
    found: list[Piece], wished: Wishes, source: random.Random
) -> None:
    shuffled = list(found)
    source.shuffle(shuffled)
    assert advise(found, wished, FAULTS) == advise(shuffled, wished, FAULTS)


@given(runs(), wishes)
def test_the_unbeaten_are_those_that_no_other_is_better_than(found: list[Piece], wished: Wishes) -> None:
    advice = advise(found, wished, FAULTS)
    known = [
        (one.transactions_per_s or 0, one.loss, one)
        for one in (assessed.candidate for assessed in advice.assessed)
        if not any(showing.doubts for showing in one.showings)
    ]
    for speed, loss, one in known:
        better = [o for s, worse, o in known if s >= speed and worse <= loss and (s > speed or worse < loss)]
        assert (one in advice.unbeaten) is (not better)


def advice_on(scenarios: Sequence[MeasuredScenario], wished: Wishes = NOTHING_LOST) -> Advice:
    return advise(pieces_of(scenarios), wished, FAULTS)


def test_the_fastest_that_loses_nothing_is_advised_and_the_next_faster_is_told() -> None:
    advice = advice_on([*controls(), *of_both(WAL_FULL), *of_both(WAL_NORMAL, lost=7, speed=300)])
    assert advice.best is not None
    assert advice.next_faster is not None
    assert ("wal_full", "wal_normal") == (advice.best.name, advice.next_faster.candidate.name)
    assert {"lost up to 7"} == {reason.text for reason in advice.next_faster.reasons}
    assert ["wal_normal", "wal_full"] == [one.name for one in advice.unbeaten]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_control_that_did_not_fire_leaves_nothing_to_advise(fault: str) -> None:
    blind = [
        replace(one, verdicts=tuple(durable(5)))
        if one.scenario.fault == fault and one.scenario.settings == sqlite("wal", "off")
        else one
        for one in controls()
    ]
    advice = advice_on([*blind, *of_both(WAL_FULL)])
    assert advice.best is None
    assert advice.is_refused
    (one,) = [one for one in advice.assessed if one.candidate.name == "wal_full"]
    assert [(fault, "control wal_off did not fire")] == [(reason.fault, reason.text) for reason in one.reasons]


def test_a_zero_under_one_of_the_faults_alone_is_not_enough() -> None:
    advice = advice_on([*controls(), *of_both(WAL_FULL)[:1]])
    assert advice.best is None
    assert advice.is_refused
    (one,) = [one for one in advice.assessed if one.candidate.name == "wal_full"]
    assert [("torn", "not measured")] == [(reason.fault, reason.text) for reason in one.reasons]


def test_fewer_file_contents_than_wished_for_are_not_enough() -> None:
    scenarios = [*controls(), *of_both(WAL_FULL, count=9)]
    assert advice_on(scenarios, replace(NOTHING_LOST, exposure_min=9)).best
    refused = advice_on(scenarios, replace(NOTHING_LOST, exposure_min=10))
    assert refused.best is None
    assert refused.is_refused


@pytest.mark.parametrize(
    ("wished", "is_met"),
    [
        (Wishes(lost_max=7), True),
        (Wishes(lost_max=6), False),
        (Wishes(lost_s_max=3.5), True),
        (Wishes(lost_s_max=3.4), False),
        (Wishes(lost_max=9, lost_s_max=3.4), False),
        (Wishes(no_corruption=True), True),
        (Wishes(no_corruption=True, exposure_min=9), True),
        (Wishes(no_corruption=True, exposure_min=10), False),
    ],
)
def test_a_wish_is_met_up_to_its_limit(wished: Wishes, is_met: bool) -> None:
    advice = advice_on([*controls(), *of_both(WAL_NORMAL, lost=7)], wished)
    assert is_met is (advice.best is not None)


def test_damage_goes_against_every_wish() -> None:
    scenarios = [*controls(), *of_both(WAL_FULL)]
    bad = measured_scenario(WAL_NORMAL, [*durable(8), verdict(VerdictKind.CORRUPT, 0, "bad", acked=0)])
    for wished in (Wishes(lost_max=9), Wishes(lost_s_max=9), Wishes(no_corruption=True)):
        (one,) = [one for one in advice_on([*scenarios, bad], wished).assessed if one.candidate.name == "wal_normal"]
        assert wished.words == tuple(reason.wish for reason in one.reasons if "damaged" in reason.text)


def test_a_zero_where_a_loss_is_documented_is_luck() -> None:
    advice = advice_on([*controls(), *of_both(WAL_NORMAL)])
    assert advice.best is None
    assert not advice.is_refused, "no run could prove it"
    assert "wal_normal" == advice_on([*controls(), *of_both(WAL_NORMAL)], Wishes(lost_max=1)).best.name  # type: ignore[union-attr]


def test_what_another_workload_lost_the_setting_lost() -> None:
    life = changed(
        measured_scenario(WAL_FULL, [verdict(VerdictKind.CORRUPT, 0, "bad")]),
        workload="life",
    )
    assert advice_on([*controls(), *of_both(WAL_FULL)]).best
    assert advice_on([*controls(), *of_both(WAL_FULL), life]).best is None


def test_a_loss_of_another_workload_counts_against_a_wish_that_allows_some() -> None:
    life = changed(
        measured_scenario(WAL_NORMAL, [*durable(8), verdict(VerdictKind.LOST_SUFFIX, 3, "lost")]),
        workload="life",
    )
    scenarios = [*controls(), *of_both(WAL_NORMAL, lost=1)]
    assert advice_on(scenarios, Wishes(lost_max=2)).best
    assert advice_on([*scenarios, life], Wishes(lost_max=2)).best is None


def test_another_tuning_and_another_build_are_other_candidates() -> None:
    tuned = [changed(one, tuning={"wal_autocheckpoint": "1000"}) for one in of_both(WAL_FULL, lost=3, speed=300)]
    own = [
        replace(one, recording=replace(one.recording, engine_version="3.7.0")) for one in of_both(WAL_FULL, speed=400)
    ]
    pieces = [*pieces_of([*controls(), *of_both(WAL_FULL)]), *pieces_of([*controls(), *tuned], "runs/b")]
    pieces += pieces_of([*controls(), *own], "runs/c")
    advice = advise(pieces, NOTHING_LOST, FAULTS)
    found = {(one.candidate.title, one.candidate.version): one.standing for one in advice.assessed}
    assert Standing.MEETS is found["wal_full", "3.46.1"]
    assert Standing.RULED_OUT is found["wal_full wal_autocheckpoint=1000", "3.46.1"]
    assert Standing.MEETS is found["wal_full", "3.7.0"]


def test_of_equally_fast_settings_the_one_that_syncs_least_is_advised() -> None:
    both = [*of_both(sqlite("wal", "extra"), speed=101), *of_both(WAL_FULL, speed=100)]
    advice = advice_on([*controls(), *both])
    assert advice.best is not None
    assert ("wal_full", ["wal_extra"]) == (advice.best.name, [one.name for one in advice.as_fast])


def test_the_matrix_is_advised_as_its_report_says() -> None:
    advice = advice_on([one for fault in FAULTS for one in matrix(fault)])
    assert advice.best is not None
    assert "wal_full" == advice.best.name
    assert {"wal_off"} <= {one.name for one in advice.unbeaten}


def test_without_a_wish_there_is_no_advice() -> None:
    with pytest.raises(ValueError, match="without a wish"):
        Wishes()
