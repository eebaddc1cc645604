"""Outcomes add up whatever the order, doubt is never green, and a worse verdict never improves a result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.analysis.dossiers import control_settings, dossier_of
from rig.analysis.dossiers.sqlite import JOURNAL_MODES, SYNCHRONOUS
from rig.analysis.judging.controls import ControlResult, must_lose
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Judgement, Result, Row, Summary, breaks, judge, summarise
from rig.analysis.judging.promises import promise_for, promise_of, violates
from rig.analysis.show.report import report_html
from rig.analysis.show.table import headline, table_text
from rig.contract.faultspecs import FORGETTING_FAULTS
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines import engines
from rig.engines.sqlite.spec import SPEC
from tests.unit.samples import changed, controls_that_fire, durable, matrix, measured_scenario, sqlite, verdict

GOODNESS = {Result.BROKEN: 0, Result.INCONCLUSIVE: 1, Result.NOT_JUDGED: 2, Result.KEPT: 2}
WAL_FULL = sqlite("wal", "full")

asked_settings = st.builds(sqlite, st.sampled_from(JOURNAL_MODES), st.sampled_from(SYNCHRONOUS))
verdicts = st.lists(
    st.builds(
        verdict,
        kind=st.sampled_from(VerdictKind),
        lost=st.integers(0, 3),
        content=st.sampled_from("abcdef"),
        state=st.sampled_from(["e1", "e2", "e3"]),
        instant_weight_ns=st.sampled_from([0, 1, 5]),
    ),
    max_size=12,
)


def judge_scenario(one: MeasuredScenario, exposure_min: int = 5) -> Judgement:
    return judge(outcome(one), promise_of(one.scenario), exposure_min)


def row_of(summary: Summary, one: MeasuredScenario) -> Row:
    return next(row for row in summary.rows if row.outcome.measured == one)


@given(asked_settings, verdicts, st.randoms(use_true_random=False))
def test_the_order_of_verdicts_never_matters(asked: dict[str, str], rows: list[Verdict], random_source: object) -> None:
    rows = [replace(row, state=f"{row.state}-{index}") for index, row in enumerate(rows)]
    shuffled = list(rows)
    random_source.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = measured_scenario(asked, rows), measured_scenario(asked, shuffled)
    assert judge_scenario(first) == judge_scenario(second)
    assert replace(outcome(first), measured=second) == outcome(second)


@given(asked_settings, verdicts.filter(bool), st.sampled_from(VerdictKind), st.integers(1, 3))
def test_a_worse_verdict_for_a_state_never_improves_the_result(
    asked: dict[str, str], rows: list[Verdict], kind: VerdictKind, lost: int
) -> None:
    order = list(VerdictKind)
    worse = replace(rows[0], kind=kind, lost=max(rows[0].lost, lost))
    assume(not rows[0].kind.is_infrastructure and order.index(kind) >= order.index(rows[0].kind))
    # Trouble in the rig may hide a counterexample, so it only counts as worse than a good verdict.
    assume(not kind.is_infrastructure or (rows[0].kind is VerdictKind.DURABLE and rows[0].lost == 0))
    before, after = (
        judge_scenario(measured_scenario(asked, rows)),
        judge_scenario(measured_scenario(asked, [worse, *rows[1:]])),
    )
    assert GOODNESS[after.result] <= GOODNESS[before.result]


@given(asked_settings, verdicts, st.sampled_from(VerdictKind), st.integers(0, 3))
def test_a_verdict_that_violates_the_promise_always_breaks_it(
    asked: dict[str, str], rows: list[Verdict], kind: VerdictKind, lost: int
) -> None:
    promise = promise_for("sqlite", asked, "powercut", "none")
    assert promise is not None
    bad = verdict(kind, lost, "bad")
    result = judge_scenario(measured_scenario(asked, [*rows, bad], state_count=999, reproduced=False), 10**6)
    assert (bad in result.broken_by) is violates(promise, bad)
    assert bool(result.broken_by) is (result.result is Result.BROKEN)


@given(asked_settings, verdicts)
def test_every_result_gives_a_reason(asked: dict[str, str], rows: list[Verdict]) -> None:
    assert judge_scenario(measured_scenario(asked, rows)).reasons


@pytest.mark.parametrize(("count", "result"), [(4, Result.INCONCLUSIVE), (5, Result.KEPT)])
def test_a_search_that_found_nothing_new_is_enough_unless_it_saw_hardly_anything(count: int, result: Result) -> None:
    made = measured_scenario(WAL_FULL, durable(count))
    assert 40 == made.recording.transaction_count
    assert Result.INCONCLUSIVE is judge_scenario(made, exposure_min=60).result
    saturated = replace(made.plan, is_saturated=True)
    assert result is judge_scenario(replace(made, plan=saturated), exposure_min=60).result


def in_doubt(one: MeasuredScenario, doubtful: int, certain: int = 19) -> MeasuredScenario:
    doubt = "byte 1024 of the disk was written with FUA and without"
    return replace(one, plan=replace(one.plan, epoch_count=certain, epochs_doubtful=doubtful, doubt=doubt))


@pytest.mark.parametrize(
    "one",
    [
        measured_scenario(WAL_FULL, durable(9)),
        measured_scenario(WAL_FULL, []),
        measured_scenario(sqlite("delete", "off"), durable(9)),
    ],
)
def test_a_recording_of_which_more_than_one_epoch_in_twenty_is_doubtful_says_so_by_name(one: MeasuredScenario) -> None:
    allowed, blind = in_doubt(one, 1), in_doubt(one, 2)
    assert "doubtful" not in " ".join(judge_scenario(allowed).reasons)
    result = judge_scenario(blind)
    assert Result.INCONCLUSIVE is result.result
    assert result.reasons[0].startswith("2 of 21 epochs are doubtful and could hardly be cut: byte 1024 of the disk")
    assert "--seed" in result.reasons[0]
    summary = summarise([blind, *controls_that_fire()], 5)
    assert 3 == summary.exit_code
    for shown in (table_text(summary, 400), report_html(summary, {})):
        assert result.reasons[0] in shown
        assert "nothing judged" not in shown
    assert ("epochs in doubt" in table_text(summary)) is (not one.verdicts)


def test_a_counterexample_found_in_spite_of_doubt_counts_and_the_doubt_is_told() -> None:
    result = judge_scenario(in_doubt(measured_scenario(WAL_FULL, [verdict(VerdictKind.LOST_SUFFIX, 1)]), 19))
    assert Result.BROKEN is result.result
    assert "19 of 38 epochs are doubtful" in " ".join(result.reasons)


@pytest.mark.parametrize(
    ("doubtful", "reason"),
    [
        (measured_scenario(WAL_FULL, durable(4)), "too little exposure: 4 distinct file contents, 5 asked for"),
        (measured_scenario(WAL_FULL, []), "no state has a verdict"),
        (measured_scenario(WAL_FULL, [], epochs_sampled=0), "no state has a verdict"),
        (measured_scenario(WAL_FULL, durable(9), state_count=10), "only 9 of 10 planned states"),
        (
            measured_scenario(WAL_FULL, [*durable(98), verdict(VerdictKind.HANG), verdict(VerdictKind.KERNEL_PANIC)]),
            "2 of 100",
        ),
        (measured_scenario(WAL_FULL, [*durable(50), verdict(VerdictKind.INCONCLUSIVE)]), "1 of 51"),
        (
            measured_scenario(WAL_FULL, [verdict(VerdictKind.FILESYSTEM_DAMAGE, state=str(i)) for i in range(9)]),
            "no state has",
        ),
        (measured_scenario(WAL_FULL, durable(9), reproduced=False), "another recording"),
        (measured_scenario(WAL_FULL, durable(9), fault="meteorite"), "no promise is known"),
        (
            measured_scenario(WAL_FULL, durable(9), read_back=sqlite("wal", "normal")),
            "synchronous=full was asked for, normal was",
        ),
        (measured_scenario(WAL_FULL, durable(9), read_back={"journal_mode": "wal"}), "nothing was read back"),
    ],
)
def test_doubt_is_inconclusive_and_says_why(doubtful: MeasuredScenario, reason: str) -> None:
    result = judge_scenario(doubtful)
    assert result.result is Result.INCONCLUSIVE
    assert reason in "; ".join(result.reasons)


@pytest.mark.parametrize(
    "sound",
    [
        measured_scenario(WAL_FULL, durable(5)),
        measured_scenario(WAL_FULL, durable(5), reproduced=None),
        measured_scenario(WAL_FULL, durable(1), epochs_sampled=0),
        measured_scenario(WAL_FULL, [*durable(99), verdict(VerdictKind.HANG)]),
        measured_scenario(sqlite("delete", "full"), [*durable(5), verdict(VerdictKind.LOST_SUFFIX, 1, "a")]),
        measured_scenario(sqlite("wal", "normal"), [*durable(5), verdict(VerdictKind.LOST_SUFFIX, 15, "a")]),
    ],
)
def test_exposed_and_within_its_promise_is_kept(sound: MeasuredScenario) -> None:
    assert judge_scenario(sound).result is Result.KEPT


def test_filesystem_damage_is_shown_and_not_blamed_on_the_database() -> None:
    result = judge_scenario(measured_scenario(WAL_FULL, [*durable(5), verdict(VerdictKind.FILESYSTEM_DAMAGE)]))
    assert result.result is Result.KEPT
    assert "1 states of file-system damage, not blamed on the database" in result.reasons


def test_where_nothing_is_promised_nothing_is_kept_and_what_came_back_is_said() -> None:
    rows = [verdict(VerdictKind.CORRUPT), verdict(VerdictKind.FOREIGN, state="b"), *durable(3)]
    result = judge_scenario(measured_scenario(sqlite("delete", "off"), rows))
    (reason,) = result.reasons
    assert (Result.NOT_JUDGED, ()) == (result.result, result.broken_by)
    assert reason.startswith("nothing is promised: 2 of 5 file contents came back damaged, 1 of them silently wrong")


def test_a_run_in_which_nothing_could_be_judged_is_not_green() -> None:
    unpromised = measured_scenario(sqlite("delete", "off"), [verdict(VerdictKind.LOST_SUFFIX, 1), *durable(3)])
    alone = summarise([unpromised], 1)
    assert (Result.INCONCLUSIVE, 3) == (alone.result, alone.exit_code)
    assert "kept" not in headline(alone)
    both = summarise([measured_scenario(WAL_FULL, durable(9)), *controls_that_fire()], 5)
    assert Result.KEPT is both.result
    assert headline(both).startswith("Every promise was kept: 1 scenario, ")
    assert headline(both).endswith(" Nothing is promised for 2 more scenarios.")


def test_a_violation_under_other_settings_than_asked_for_is_no_counterexample() -> None:
    rows = [verdict(VerdictKind.LOST_SUFFIX, 3)]
    assert (
        judge_scenario(measured_scenario(WAL_FULL, rows, read_back=sqlite("wal", "normal"))).result
        is Result.INCONCLUSIVE
    )


def test_a_run_may_end_at_a_verdict_that_breaks_a_promise_which_nobody_sabotaged() -> None:
    plain = Scenario("sqlite", "ext4", WAL_FULL, "powercut")
    lost = verdict(VerdictKind.LOST_SUFFIX, 1)
    assert breaks(plain, lost)
    assert not breaks(plain, verdict())
    for other in (
        replace(plain, settings=sqlite("wal", "off")),
        replace(plain, shim="eatmydata"),
        replace(plain, shim="drop-wal-commit"),
        replace(plain, filesystem="ext2"),
    ):
        assert not breaks(other, lost), other.id


def test_counterexamples_come_worst_first() -> None:
    rows = [
        verdict(VerdictKind.LOST_SUFFIX, 1, "a"),
        verdict(VerdictKind.LOST_SUFFIX, 7, "b"),
        verdict(VerdictKind.CORRUPT, 0, "c"),
    ]
    assert ["c", "b", "a"] == [one.state for one in judge_scenario(measured_scenario(WAL_FULL, rows)).broken_by]


def test_kept_with_every_control_fired_exits_zero() -> None:
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), *controls_that_fire()], 5)
    assert (Result.KEPT, 0) == (summary.result, summary.exit_code)
    assert {True} == {control.fired for control in summary.controls}


def test_a_broken_promise_exits_one_even_if_all_else_is_doubtful() -> None:
    broken = measured_scenario(WAL_FULL, [verdict(VerdictKind.LOST_SUFFIX, 1)])
    summary = summarise([broken, measured_scenario(sqlite("wal", "extra"), [])], 5)
    assert (Result.BROKEN, 1) == (summary.result, summary.exit_code)


def test_inconclusive_exits_three_and_no_scenarios_at_all_are_inconclusive() -> None:
    summary = summarise([measured_scenario(WAL_FULL, durable(2)), *controls_that_fire()], 5)
    assert (Result.INCONCLUSIVE, 3) == (summary.result, summary.exit_code)
    assert summarise([], 5).exit_code == 3


def silent(one: MeasuredScenario) -> MeasuredScenario:
    return replace(one, verdicts=tuple(durable(20)), plan=replace(one.plan, state_count=20))


@pytest.mark.parametrize("index", [0, 1])
def test_a_control_that_does_not_fire_voids_every_green_scenario_of_its_group(index: int) -> None:
    controls = controls_that_fire()
    controls[index] = silent(controls[index])
    green, other = measured_scenario(WAL_FULL, durable(9)), measured_scenario(WAL_FULL, durable(9), "torn")
    summary = summarise([green, other, *controls, *controls_that_fire("torn")], 5)
    assert {Result.INCONCLUSIVE} == {
        row.judgement.result for row in summary.rows if row.outcome.scenario.fault == "powercut"
    }
    assert row_of(summary, other).judgement.result is Result.KEPT
    assert summary.exit_code == 3


def test_no_damage_with_synchronous_off_voids_the_group() -> None:
    controls = controls_that_fire()
    controls[0] = replace(controls[0], verdicts=controls[0].verdicts[:1])
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), *controls], 5)
    assert False in {control.fired for control in summary.controls if control.name == "damage"}
    assert summary.result is Result.INCONCLUSIVE


@pytest.mark.parametrize("missing", [0, 1])
def test_a_control_that_was_not_run_proves_nothing(missing: int) -> None:
    controls = controls_that_fire()
    del controls[missing]
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), *controls], 5)
    assert None in {control.fired for control in summary.controls}
    assert summary.result is Result.INCONCLUSIVE


def test_a_control_run_with_other_settings_than_asked_for_did_not_fire() -> None:
    controls = controls_that_fire()
    facts = replace(controls[0].recording, settings=sqlite("delete", "full"))
    controls[0] = replace(controls[0], recording=facts)
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), *controls], 5)
    assert [False] == [control.fired for control in summary.controls if control.name == "delete_off"]


def sabotage(summary: Summary) -> ControlResult:
    return next(control for control in summary.controls if control.name == "wal_full+eatmydata")


def test_a_promise_that_a_shim_breaks_on_purpose_is_a_control_that_fired() -> None:
    broken = measured_scenario(WAL_FULL, [*durable(9), verdict(VerdictKind.LOST_SUFFIX, 3, "a")], shim="eatmydata")
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), broken, *controls_that_fire()], 5)
    assert (Result.KEPT, True) == (summary.result, sabotage(summary).fired)
    assert row_of(summary, broken).judgement.result is Result.BROKEN


def test_a_shim_that_breaks_nothing_voids_the_group() -> None:
    unbroken = measured_scenario(WAL_FULL, durable(9), shim="eatmydata")
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), unbroken, *controls_that_fire()], 5)
    assert (Result.INCONCLUSIVE, False) == (summary.result, sabotage(summary).fired)


def test_damage_alone_fires_no_control_that_must_lose() -> None:
    """Where the rig were blind to losses, damage would still be seen."""
    damaged = [verdict(VerdictKind.CORRUPT, 0, "a"), *durable(3)]
    swallowed = measured_scenario(WAL_FULL, damaged, shim="eatmydata")
    off = [replace(one, verdicts=tuple(damaged)) for one in controls_that_fire()]
    summary = summarise([measured_scenario(WAL_FULL, durable(9)), swallowed, *off], 5)
    assert {"delete_off": False, "wal_off": False, "damage": True, "wal_full+eatmydata": False} == {
        control.name: control.fired for control in summary.controls
    }
    assert summary.result is Result.INCONCLUSIVE


def swallowed_by_rocksdb(kind: VerdictKind, workload: str = "ledger") -> ControlResult:
    """Return the control of a RocksDB without syncs, which is found with one state of this kind."""
    rows = [verdict(kind, 3 if kind is VerdictKind.LOST_SUFFIX else 0, "a"), *durable(3)]
    swallowed = measured_scenario({"writes": "sync"}, rows, shim="eatmydata")
    results = summarise([changed(swallowed, engine="rocksdb", workload=workload)], 5).controls
    return next(control for control in results if control.name.endswith("+eatmydata"))


@pytest.mark.parametrize(
    ("kind", "fired"),
    [(VerdictKind.UNOPENABLE, True), (VerdictKind.LOST_SUFFIX, True), (VerdictKind.DURABLE, False)],
)
def test_damage_fires_the_control_of_an_engine_that_may_never_come_back_whole_without_syncs(
    kind: VerdictKind, fired: bool
) -> None:
    control = swallowed_by_rocksdb(kind)
    assert (fired, True) == (control.fired, "CURRENT soon names a manifest" in control.what)


def test_damage_fires_no_control_where_no_settings_of_the_group_must_lose() -> None:
    assert not swallowed_by_rocksdb(VerdictKind.UNOPENABLE, "life").fired
    assert swallowed_by_rocksdb(VerdictKind.LOST_SUFFIX, "life").fired


@pytest.mark.parametrize("name", sorted(engine.name for engine in engines()))
def test_an_engine_excused_from_coming_back_whole_has_settings_that_must_lose(name: str) -> None:
    """Of the faults under which syncs are swallowed; otherwise a rig that is blind to losses would pass."""
    controls = dossier_of(name).CONTROLS
    if controls.damaged_without_syncs:
        assert set(FORGETTING_FAULTS) <= {fault for fault, settings in controls.must_lose.items() if settings}


def test_a_group_without_any_known_control_is_never_green() -> None:
    summary = summarise([measured_scenario(WAL_FULL, durable(9), "meteor")], 5)
    assert summary.result is Result.INCONCLUSIVE
    assert "no control is known for sqlite on ext4, meteor" in summary.rows[0].judgement.reasons


def test_the_scenarios_to_add_for_the_controls_are_the_scenarios_that_must_lose() -> None:
    for asked in control_settings("sqlite", "powercut"):
        settings = SPEC.settings_named(asked)
        assert must_lose(measured_scenario(settings, []).scenario)
        assert not must_lose(measured_scenario(settings, [], shim="eatmydata").scenario)
        assert not must_lose(measured_scenario(settings, [], "processkill").scenario)
    assert not must_lose(measured_scenario(WAL_FULL, []).scenario)


@given(st.permutations(range(4)))
@settings(max_examples=20)
def test_the_order_of_scenarios_never_matters(order: list[int]) -> None:
    scenarios = matrix()[:4]
    assert summarise(scenarios, 100) == summarise([scenarios[rank] for rank in order], 100)


def excused(count: int) -> list[Verdict]:
    detail = "3 errors; seen as corrupt: x"
    return [verdict(VerdictKind.FILESYSTEM_DAMAGE, state=f"fs{n}", detail=detail) for n in range(count)]


def test_what_cannot_be_and_what_only_a_damaged_file_system_excuses_too_often_is_a_doubt() -> None:
    ahead = replace(verdict(VerdictKind.INCONCLUSIVE, state="ahead"), recovered=9)
    for rows, doubt in (([ahead], "1 states have a"), (excused(22), "22 of 422 states were bad")):
        judged = judge_scenario(measured_scenario(WAL_FULL, [*durable(400), *rows]))
        assert (Result.INCONCLUSIVE, doubt) == (judged.result, judged.doubts[0][: len(doubt)])
    assert Result.KEPT is judge_scenario(measured_scenario(WAL_FULL, [*durable(400), *excused(20)])).result


def test_what_two_disks_left_uncut_is_not_exhausted() -> None:
    few = measured_scenario(WAL_FULL, durable(1), epochs_sampled=0)
    uncut = [judge_scenario(replace(few, plan=replace(few.plan, epochs_unproven=count))) for count in (0, 12, 99)]
    assert [0, 1, 2] == [len(judged.doubts) for judged in uncut]
