"""Killed, started again, then cut: what was acknowledged must last; what was only shown must where that is promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.dossiers.program import promise as promise_of_program
from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.promises import promise_for, violates
from rig.analysis.show.table import explanation
from rig.campaign.evidence import require_choice
from rig.contract.errors import UsageError
from rig.contract.results import LiveFinding, MeasuredScenario, Verdict, VerdictKind
from rig.engines import engine_named
from rig.filesystems import filesystem_named
from rig.planning import matrix
from tests.unit.samples import controls_that_fire, durable, measured_scenario, sqlite, verdict

FAULT = "killcut"
WAL_FULL = sqlite("wal", "full")
RESTART: LiveFinding = {"state": "kill-1", "acked": 1, "issued": 2, "kind": "prefix", "recovered": 2, "detail": ""}


def lost(count: int, shown: int) -> Verdict:
    return replace(verdict(VerdictKind.LOST_SUFFIX, count), lost_shown=shown)


def killed(one: MeasuredScenario, count: int = 1) -> MeasuredScenario:
    return replace(one, recording=replace(one.recording, live=[RESTART] * count))


def group(*scenarios: MeasuredScenario) -> list[MeasuredScenario]:
    return [killed(one) for one in (*controls_that_fire(FAULT), *scenarios)]


@pytest.mark.parametrize(
    ("count", "shown", "by_database", "by_program"),
    [(1, 0, True, True), (1, 1, False, True), (2, 1, True, True), (3, 3, False, True)],
)
def test_only_a_program_promises_that_what_it_shows_after_a_restart_lasts(
    count: int, shown: int, *, by_database: bool, by_program: bool
) -> None:
    of_database, of_program = (
        promise_for("sqlite", WAL_FULL, FAULT, "none"),
        promise_of_program({"promise": "durable"}, FAULT),
    )
    assert of_database
    assert of_program
    assert by_database is violates(of_database, lost(count, shown))
    assert by_program is violates(of_program, lost(count, shown))


def test_a_loss_of_what_was_only_shown_is_a_fact_beside_a_promise_that_is_kept() -> None:
    summary = summarise(group(measured_scenario(WAL_FULL, [lost(1, 1), *durable(20)], FAULT)), 5)
    (row,) = (row for row in summary.rows if row.outcome.scenario.settings == WAL_FULL)
    assert Result.KEPT is row.judgement.result
    assert any("1 states lost what had only been shown" in reason for reason in row.judgement.reasons)
    assert 1 == row.outcome.losing_count
    # The table shows the loss, so a line below it says what it is.
    note, replay = explanation(row)
    assert note.startswith(f"kept {row.outcome.scenario.id}: 1 states lost what had only been shown, after a restart")
    assert replay.startswith("  rig replay ")
    assert [] == explanation(replace(row, outcome=outcome(measured_scenario(WAL_FULL, durable(20), FAULT))))
    broken = summarise(group(measured_scenario(WAL_FULL, [lost(2, 1), *durable(20)], FAULT)), 5)
    assert Result.BROKEN is broken.result


def test_a_control_has_to_lose_what_it_acknowledged_and_every_scenario_has_to_be_killed() -> None:
    fired = {one.name: one.fired for one in check_controls([outcome(one) for one in group()])}
    assert {"delete_off": True, "wal_off": True, "restart": True} == fired
    alive = [*controls_that_fire(FAULT)[:1], *map(killed, controls_that_fire(FAULT)[1:])]
    assert not {one.name: one.fired for one in check_controls([outcome(one) for one in alive])}["restart"]
    shown = [replace(one, verdicts=(lost(1, 1),)) for one in group()]
    assert {False} == {one.fired for one in check_controls([outcome(one) for one in shown]) if one.name != "restart"}


def test_scenarios_under_kills_and_what_cannot_be_measured() -> None:
    ids = {one.id for one in matrix.select(["*-ext4-*_killcut"])}
    assert {
        "sqlite-ext4-wal_full_killcut", "sqlite-ext4-wal_off_killcut", "lmdb-ext4-default_killcut",
        "leveldb-ext4-default_sync_killcut", "rocksdb-ext4-sync_killcut",
    } <= ids  # fmt: skip
    # A kill alone may damage these; and only a program has its syncs swallowed by supervision.
    assert not {"sqlite-ext4-memory_full_killcut", "sqlite-ext4-wal_full+eatmydata_killcut"} & ids
    programs = {one.id for one in matrix.scenarios_of([engine_named("program")], [filesystem_named("ext4")])}
    assert {"program-ext4-durable_killcut", "program-ext4-durable+eatmydata_killcut"} <= programs
    for pattern, words in (
        ("postgresql-ext4-default_killcut", "it is a server"),
        ("files-ext4-append-fsync_killcut", "recovers nothing that it could go on with"),
    ):
        with pytest.raises(UsageError, match=words):
            matrix.select([pattern])
    (killed_and_cut,) = matrix.select(["sqlite-ext4-wal_full_killcut"])
    require_choice(killed_and_cut)
    (misdirected,) = matrix.select(["sqlite-ext4-wal_full_misdirected"])
    with pytest.raises(UsageError, match="the states of misdirected are no free choice of writes"):
        require_choice(misdirected)


@pytest.mark.parametrize(
    ("promise", "kind", "fired"),
    [
        ("atomic", VerdictKind.TORN, True),
        ("atomic", VerdictKind.LOST_SUFFIX, True),
        ("atomic", VerdictKind.DURABLE, False),
        ("durable", VerdictKind.TORN, False),
        ("durable", VerdictKind.LOST_SUFFIX, True),
    ],
)
def test_where_any_loss_is_allowed_damage_shows_that_the_swallowed_syncs_matter(
    promise: str, kind: VerdictKind, *, fired: bool
) -> None:
    # With a neighbour, names are durable without syncs, and bytes are not: nothing comes back whole.
    offered = matrix.scenarios_of([engine_named("program")], [filesystem_named("ext4")])
    name = f"program-ext4-{promise}.neighbour+eatmydata_powercut"
    (scenario,) = (one for one in offered if one.id == name)
    lost_count = int(kind is VerdictKind.LOST_SUFFIX)
    measured = measured_scenario(scenario.settings, [verdict(kind, lost_count)], read_back=scenario.settings)
    (control,) = check_controls([outcome(replace(measured, scenario=scenario))])
    assert fired is control.fired
