"""Mutants, the sync calls sampled from transactions, and the controls of killed processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rig.analysis import mutations, protocol
from rig.analysis.controls import check_controls, is_sabotaged, must_break
from rig.analysis.outcome import Result, outcome, summarise
from rig.analysis.report import report_html
from rig.analysis.table import table_text
from rig.contract.results import LiveFinding, MeasuredScenario, Verdict, VerdictKind
from rig.planning import matrix
from rig.planning.verdicts import live_verdicts
from tests.unit.samples import controls_that_fire, durable, measured, sqlite, verdict

WAL_FULL = sqlite("wal", "full")
LOST = [*durable(9), verdict(VerdictKind.LOST_SUFFIX, 2, "lost")]


def mutant(kind: str, verdicts: Sequence[Verdict], fault: str = "powercut") -> MeasuredScenario:
    made = measured(WAL_FULL, verdicts, fault, f"drop-{kind}")
    return replace(made, id=f"sqlite-ext4-wal_full+drop-{kind}_{fault}")


def score_of(*scenarios: MeasuredScenario) -> mutations.Score:
    (score,) = mutations.scores(summarise([measured(WAL_FULL, durable(9)), *controls_that_fire(), *scenarios], 12))
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
    assert (True, False) == (is_sabotaged(one), must_break(one))
    plain = [measured(WAL_FULL, durable(9)), *controls_that_fire()]
    with_mutant, without = summarise([*plain, one], 5), summarise(plain, 5)
    assert Result.KEPT is with_mutant.result is without.result
    assert without.controls == with_mutant.controls


def test_every_mutant_of_the_matrix_has_an_expectation_with_its_source() -> None:
    for one in [one for one in matrix.all_scenarios() if one.dropped_sync and one.engine == "sqlite"]:
        found = mutations.expectation(one)
        assert found, one.id
        assert found.reason
        assert found.source


def test_the_section_is_there_only_when_mutants_are() -> None:
    plain = [measured(WAL_FULL, durable(9)), *controls_that_fire()]
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
    made = measured(settings, verdicts or durable(9))
    return replace(made, recording=replace(made.recording, syncs=dict.fromkeys(sequences, 3)))


def test_syncs_as_documented_are_no_difference_and_any_other_sequence_names_both() -> None:
    for sequences in (["wal"], ["wal", "wal wal", "wal wal database", "wal wal wal database"], []):
        assert "" == protocol.difference(with_syncs(*sequences))
    found = protocol.difference(with_syncs("wal", "database"))
    assert "measured 'database' (3), documented 'wal' or" in found
    assert "measured 'wal wal' (3)" in protocol.difference(with_syncs("wal wal"))
    delete = with_syncs("journal directory journal database unlink", settings=sqlite("delete", "full"))
    assert "" == protocol.difference(delete)
    assert "documented 'journal directory journal database unlink directory'" in protocol.difference(
        replace(delete, settings=sqlite("delete", "extra"))
    )
    assert "" == protocol.difference(replace(with_syncs("strange"), engine="another"))


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


def killed(settings: dict[str, str], *findings: LiveFinding) -> MeasuredScenario:
    made = measured(settings, live_verdicts("", findings), "processkill")
    return replace(made, recording=replace(made.recording, live=findings))


def kill(number: int, acked: int, issued: int, kind: str = "prefix", recovered: int | None = None) -> LiveFinding:
    return {
        "state": f"kill-{number}", "acked": acked, "issued": issued, "kind": kind,
        "recovered": acked if kind == "prefix" and recovered is None else recovered, "detail": "killed here",
        "files": f"files of {number}",
    }  # fmt: skip


def test_kills_prove_nothing_unless_commits_were_hit_and_memory_off_came_back_damaged() -> None:
    hit, after = kill(1, 0, 1), kill(2, 1, 1)
    broken = killed(sqlite("memory", "off"), kill(1, 0, 1, "corrupt"), after)
    good = killed(WAL_FULL, hit, after)
    assert Result.KEPT is summarise([good, broken], 2).result
    assert Result.INCONCLUSIVE is summarise([killed(WAL_FULL, after, kill(3, 2, 2)), broken], 2).result
    assert Result.INCONCLUSIVE is summarise([good, killed(sqlite("memory", "off"), hit, after)], 2).result
    assert Result.INCONCLUSIVE is summarise([good], 2).result
    names = [(control.name, control.fired) for control in check_controls([outcome(good)])]
    assert [("mid-commit", True), ("memory_off", None)] == names


def test_what_a_kill_cost_is_told_with_where_it_was() -> None:
    lost, torn, fine = live_verdicts(
        "", [kill(1, 3, 4, recovered=2), kill(2, 3, 4, "torn"), kill(3, 3, 4, recovered=4)]
    )
    assert (VerdictKind.LOST_SUFFIX, 1) == (lost.kind, lost.lost)
    assert "transactions 3 to 3 were acknowledged and are gone; killed here" == lost.detail
    assert (VerdictKind.TORN, "killed here") == (torn.kind, torn.detail)
    assert (VerdictKind.DURABLE, "killed here") == (fine.kind, fine.detail)
