"""Mutants, the sync calls sampled from transactions, and the controls of killed processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging import mutations, protocol
from rig.analysis.judging.controls import check_controls, is_sabotaged, must_break
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.protocol import SyncComparison
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.campaign.verdicts import live_verdicts
from rig.contract.results import LiveFinding, MeasuredScenario, Verdict, VerdictKind
from rig.planning import matrix
from tests.unit.engines import outside as engines
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite, verdict

WAL_FULL = sqlite("wal", "full")
LOST = [*durable(9), verdict(VerdictKind.LOST_SUFFIX, 2, "lost")]


def mutant(kind: str, verdicts: Sequence[Verdict], fault: str = "powercut") -> MeasuredScenario:
    return measured_scenario(WAL_FULL, verdicts, fault, f"drop-{kind}")


def score_of(*scenarios: MeasuredScenario) -> mutations.Score:
    (score,) = mutations.scores(
        summarise([measured_scenario(WAL_FULL, durable(9)), *controls_that_fire(), *scenarios], 12)
    )
    return score


def test_a_mutant_is_noticed_when_its_promise_breaks_under_any_fault_that_was_tried() -> None:
    scenarios = [mutant("wal-commit", durable(9)), mutant("wal-commit", LOST, "torn")]
    assert "1 / 1" == score_of(*scenarios, *controls_that_fire("torn")).text
    assert "0 / 1" == score_of(mutant("wal-commit", durable(9))).text


def test_a_survivor_has_its_reason_or_is_unknown_and_only_what_matters_counts() -> None:
    score = score_of(
        *(mutant(kind, durable(9)) for kind in ("wal-commit", "wal-checkpoint")), mutant("wal-header", LOST)
    )
    assert "1 / 2" == score.text
    texts = {one.kind: one.text for one in score.mutants}
    assert {"wal-commit": "survives: unknown", "wal-header": "noticed"}.items() <= texts.items()
    assert texts["wal-checkpoint"].startswith("survives: redundant")
    assert "noticed, though not expected" == score_of(mutant("wal-checkpoint", LOST)).mutants[0].text


def test_a_mutant_that_too_little_was_seen_of_neither_survives_nor_is_noticed() -> None:
    # An eighth of the exposure of 12, rounded up.
    score = score_of(mutant("wal-commit", durable(1)))
    assert (None, "inconclusive", "0 / 1") == (score.mutants[0].noticed, score.mutants[0].text, score.text)
    assert score_of(mutant("wal-commit", durable(2))).mutants[0].noticed is False


@pytest.mark.parametrize("verdicts", [LOST, durable(9)])
def test_a_mutant_never_counts_against_the_engine_and_is_no_control(verdicts: list[Verdict]) -> None:
    one = mutant("wal-commit", verdicts)
    assert (True, False) == (is_sabotaged(one.scenario), must_break(one.scenario))
    plain = [measured_scenario(WAL_FULL, durable(9)), *controls_that_fire()]
    with_mutant, without = summarise([*plain, one], 5), summarise(plain, 5)
    assert Result.KEPT is with_mutant.result is without.result
    assert without.controls == with_mutant.controls


def test_every_mutant_of_the_matrix_has_an_expectation_with_its_source() -> None:
    for one in [one for one in matrix.all_scenarios() if one.dropped_sync and one.engine == "sqlite"]:
        found = mutations.expectation(one)
        assert found, one.id
        assert found.reason
        assert found.source


def test_the_sync_of_the_end_of_a_journal_matters_also_with_an_exclusive_lock() -> None:
    for name, kind in (("delete_full", "journal3"), ("delete_normal", "journal2")):
        (one,) = matrix.select([f"sqlite-ext4-{name}.exclusive+drop-{kind}_powercut"])
        found = mutations.expectation(one)
        assert found, one.id
        assert found.matters, one.id


def test_what_was_noticed_though_nobody_expected_it_is_told() -> None:
    plain = [measured_scenario(WAL_FULL, durable(9)), *controls_that_fire()]
    told = mutations.lines(summarise([*plain, mutant("wal-checkpoint", LOST), mutant("wal-commit", LOST)], 5))
    assert ["  wal-checkpoint noticed, though not expected"] == told[1:]


def test_the_section_is_there_only_when_mutants_are() -> None:
    plain = [measured_scenario(WAL_FULL, durable(9)), *controls_that_fire()]
    with_mutant = summarise([*plain, mutant("wal-commit", durable(9))], 5)
    for shown in (table_text(with_mutant), report_html(with_mutant, {})):
        assert "wal-commit" in shown
        assert "survives: unknown" in shown
    without = summarise(plain, 5)
    assert "left out of" not in table_text(without)
    assert "Syncs left out" not in report_html(without, {})


def with_syncs(
    *sequences: str, settings: dict[str, str] = WAL_FULL, verdicts: Sequence[Verdict] = ()
) -> MeasuredScenario:
    made = measured_scenario(settings, verdicts or durable(9))
    return replace(made, recording=replace(made.recording, syncs=dict.fromkeys(sequences, 3)))


@pytest.mark.parametrize(
    ("settings", "sequences"),
    [
        (WAL_FULL, ["wal"]),
        (WAL_FULL, ["wal", "wal wal", "wal wal database", "wal wal wal database"]),
        (WAL_FULL, []),
        (sqlite("delete", "full"), ["journal directory journal database unlink"]),
    ],
)
def test_syncs_as_documented_are_nothing_to_speak_of(settings: dict[str, str], sequences: list[str]) -> None:
    assert SyncComparison() == protocol.compare(with_syncs(*sequences, settings=settings))


@pytest.mark.parametrize(
    ("settings", "sequences", "words"),
    [
        (WAL_FULL, ["wal", "database"], "measured 'database' (3), documented 'wal' or"),
        # A checkpoint with one sync left out; and one that also makes another one.
        (WAL_FULL, ["wal", "wal database"], "measured 'wal database' (3), documented"),
        (WAL_FULL, ["wal", "wal database database"], "measured 'wal database database' (3), documented"),
        (WAL_FULL, ["none"], "measured 'none' (3), documented"),
        (WAL_FULL, ["wal unlink"], "measured 'wal unlink' (3), documented"),
        (
            sqlite("delete", "extra"),
            ["journal directory journal database unlink"],
            "documented 'journal directory journal database unlink directory'",
        ),
        (
            sqlite("delete", "full"),
            ["directory journal journal database unlink"],
            "documented 'journal directory journal database unlink'",
        ),
    ],
)
def test_a_missing_sync_or_another_in_its_place_is_a_difference_that_names_both(
    settings: dict[str, str], sequences: list[str], words: str
) -> None:
    found = protocol.compare(with_syncs(*sequences, settings=settings))
    assert words in found.difference
    assert not found.note


@pytest.mark.parametrize(
    ("settings", "sequences"),
    [
        (WAL_FULL, ["wal wal"]),
        (WAL_FULL, ["wal", "wal directory", "wal wal database database"]),
        (sqlite("wal", "normal"), ["wal"]),
        (sqlite("delete", "full"), ["journal directory journal database unlink directory"]),
    ],
)
def test_a_build_that_syncs_more_than_is_documented_is_noted_and_stays_green(
    settings: dict[str, str], sequences: list[str]
) -> None:
    one = with_syncs(*sequences, settings=settings)
    note = protocol.compare(one).note
    assert note.startswith("a transaction syncs more than is documented: measured '")
    summary = summarise([one, *controls_that_fire()], 5)
    assert (Result.KEPT, 0) == (summary.result, summary.exit_code)
    (row,) = [row for row in summary.rows if row.outcome.measured == one]
    assert note in row.judgement.reasons
    assert f"syncs of sqlite ({row.outcome.settings_name}): {note}" in table_text(summary, 400)
    assert note in report_html(summary, {}).replace("&#39;", "'")


def test_an_engine_without_a_documented_protocol_is_measured_without_the_check_and_this_is_told(
    tmp_path: Path,
) -> None:
    one = changed(with_syncs(settings={"sync": "always"}), engine="bare")
    # A stored run may be of an engine that is not installed.
    assert SyncComparison() == protocol.compare(one)
    engines.write(tmp_path, "bare", without=("syncs",))
    with engines.install(tmp_path):
        assert SyncComparison(note=protocol.NOT_COMPARED) == protocol.compare(one)
        summary = summarise([one], 5)
        (row,) = summary.rows
        assert protocol.NOT_COMPARED in row.judgement.reasons
        assert not any("not the documented ones" in reason for reason in row.judgement.reasons)
        assert "syncs of bare (always): no documented protocol: not compared" in table_text(summary, 400)
        assert '<td data-label="as documented">no documented protocol: not compared' in report_html(summary, {})


def test_strange_syncs_make_a_kept_promise_inconclusive_and_leave_a_counterexample_broken() -> None:
    reasons = {}
    for verdicts, result in ((durable(9), Result.INCONCLUSIVE), (LOST, Result.BROKEN)):
        summary = summarise([with_syncs("none", verdicts=verdicts), *controls_that_fire()], 5)
        (row,) = [row for row in summary.rows if row.outcome.settings_name == "wal_full"]
        assert result is row.judgement.result
        reasons[result] = " ".join(row.judgement.reasons)
        assert "documented 'wal'" in report_html(summary, {}).replace("&#39;", "'")
        assert "documented 'wal'" in table_text(summary)
    assert all("measured 'none'" in text for text in reasons.values())


def killed_scenario(settings: dict[str, str], *findings: LiveFinding) -> MeasuredScenario:
    made = measured_scenario(settings, live_verdicts("", findings), "processkill")
    return replace(made, recording=replace(made.recording, live=findings))


def kill(number: int, acked: int, issued: int, kind: str = "prefix", recovered: int | None = None) -> LiveFinding:
    return {
        "state": f"kill-{number}", "acked": acked, "issued": issued, "kind": kind,
        "recovered": acked if kind == "prefix" and recovered is None else recovered, "detail": "killed here",
        "files": f"files of {number}",
    }  # fmt: skip


def test_kills_prove_nothing_unless_commits_were_hit_and_memory_off_came_back_damaged() -> None:
    hit, after = kill(1, 0, 1), kill(2, 1, 1)
    broken = killed_scenario(sqlite("memory", "off"), kill(1, 0, 1, "corrupt"), after)
    good = killed_scenario(WAL_FULL, hit, after)
    assert Result.KEPT is summarise([good, broken], 2).result
    assert Result.INCONCLUSIVE is summarise([killed_scenario(WAL_FULL, after, kill(3, 2, 2)), broken], 2).result
    assert Result.INCONCLUSIVE is summarise([good, killed_scenario(sqlite("memory", "off"), hit, after)], 2).result
    assert Result.INCONCLUSIVE is summarise([good], 2).result
    names = [(control.name, control.fired) for control in check_controls([outcome(good)])]
    assert [("mid-commit", True), ("memory_off", None)] == names


def test_settings_that_keep_commits_in_memory_need_no_hit_but_must_lose_if_the_dossier_says_so() -> None:
    def of(writes: str, *findings: LiveFinding) -> MeasuredScenario:
        made = killed_scenario({"writes": writes}, *findings)
        read_back = replace(made.recording, settings={"writes": writes}, syncs={})
        return changed(replace(made, recording=read_back), engine="rocksdb")

    sync = of("sync", kill(1, 0, 1), kill(2, 1, 1))
    lost, kept = kill(1, 3, 3, recovered=2), kill(1, 3, 3)
    assert {"mid-commit": True, "nowal": True} == _controls_fired(sync, of("nowal", lost), of("atomicflush", lost))
    assert {"mid-commit": True, "nowal": False} == _controls_fired(sync, of("nowal", kept))
    assert {"mid-commit": False, "nowal": True} == _controls_fired(of("sync", kill(1, 1, 1)), of("nowal", lost))


def _controls_fired(*scenarios: MeasuredScenario) -> dict[str, bool | None]:
    return {control.name: control.fired for control in check_controls(list(map(outcome, scenarios)))}


def test_what_a_kill_cost_is_told_with_where_it_was() -> None:
    lost, torn, fine = live_verdicts(
        "", [kill(1, 3, 4, recovered=2), kill(2, 3, 4, "torn"), kill(3, 3, 4, recovered=4)]
    )
    assert (VerdictKind.LOST_SUFFIX, 1) == (lost.kind, lost.lost)
    assert "transactions 3 to 3 were acknowledged and are gone; killed here" == lost.detail
    assert (VerdictKind.TORN, "killed here") == (torn.kind, torn.detail)
    assert (VerdictKind.DURABLE, "killed here") == (fine.kind, fine.detail)
