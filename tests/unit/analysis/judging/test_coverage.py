"""Coverage of situations: counted for each workload, and what was never reached is said."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.judging import coverage
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.contract.results import MeasuredScenario
from rig.engines.sqlite import situations as of_sqlite
from rig.engines.sqlite.spec import SPEC
from rig.workloads import situations
from tests.unit import samples


def scenario_reaching(workload: str, reached: list[tuple[str, int, int]], fault: str = "powercut") -> MeasuredScenario:
    """Five states, at the log entries 10 to 50; two met a log."""
    rows = [
        replace(samples.verdict(state=f"e{entry}", entry=entry), met=of_sqlite.LOG if entry > 30 else "")
        for entry in range(10, 60, 10)
    ]
    made = samples.measured_scenario(samples.sqlite("wal", "full"), rows, fault)
    facts = replace(made.recording, key=f"recording of {workload}", reached=reached, skipped={"checkpoint full": 2})
    return samples.changed(replace(made, recording=facts), workload=workload)


def reached_of(one: coverage.Coverage, word: str) -> tuple[str, ...]:
    return tuple(reached.text for reached in dict(one.lines)[word])


def test_states_are_counted_whose_instant_lies_between_the_marks() -> None:
    spilled = [(of_sqlite.SPILLED, 10, 20), (of_sqlite.SPILLED, 20, 41), ("reopen", 50, 60)]
    (one,) = coverage.coverages(summarise([scenario_reaching("ledger", []), scenario_reaching("life", spilled)], 1))
    assert ("ledger", "life") == one.workloads
    assert (coverage.NEVER, "2 recorded, 3 cut") == reached_of(one, of_sqlite.SPILLED)
    # Recorded, but never cut.
    assert (coverage.NEVER, "1 recorded, 0 cut") == reached_of(one, "reopen")
    assert (2, 2) == dict(one.met)[of_sqlite.LOG]
    assert (0, 0) == dict(one.met)[of_sqlite.HOT]
    every = {*situations.OF_TRANSACTIONS, *SPEC.situations, *situations.of_events(SPEC.events)}
    assert every == {word for word, _ in one.lines}
    assert set(SPEC.met) == {word for word, _ in one.met}


def test_a_recording_that_two_faults_share_is_counted_once_and_its_states_twice() -> None:
    spilled = [(of_sqlite.SPILLED, 0, 100)]
    both = [scenario_reaching("life", spilled), scenario_reaching("life", spilled, "torn")]
    (one,) = coverage.coverages(summarise(both, 1))
    assert ("1 recorded, 10 cut",) == reached_of(one, of_sqlite.SPILLED)
    assert (("life", "checkpoint full (2)"),) == one.skipped


def test_table_and_report_say_what_was_never_reached() -> None:
    summary = summarise([scenario_reaching("life", [(of_sqlite.SPILLED, 0, 100)])], 1)
    text, page = table_text(summary, 2000), report_html(summary, {})
    count = len(SPEC.situations) + len(SPEC.met) + len(situations.OF_TRANSACTIONS)
    count += len(situations.of_events(SPEC.events))
    assert f"sqlite, life: 2 of {count} situations reached\n" in text
    assert f" Situations not reached: sqlite: {situations.CREATED}, {situations.ONE_ROW}, " in text
    assert f", {count - 2 - 4} more (see the report)." in text
    assert "What the workloads reached: sqlite" in page
    assert page.count(coverage.NEVER) >= count - 2
    assert "life skipped, because the engine or the setting has nothing of the kind: checkpoint full (2)." in page


def test_what_nobody_looks_for_on_a_network_file_system_is_not_called_never_reached() -> None:
    served = samples.changed(scenario_reaching("life", [("reopen", 0, 100)]), filesystem="nfs")
    (alone,) = coverage.coverages(summarise([served], 1))
    assert {(coverage.NOT_SOUGHT,)} == {reached_of(alone, word) for word in SPEC.situations}
    assert ("1 recorded, 5 cut",) == reached_of(alone, "reopen")
    count = len(alone.lines) + len(alone.met) - len(SPEC.situations)
    assert f"sqlite, life: 2 of {count} situations reached" in table_text(summarise([served], 1), 2000)
    # On another file system somebody looked.
    beside = scenario_reaching("life", [])
    (both,) = coverage.coverages(summarise([served, beside], 1))
    assert {(coverage.NEVER,)} == {reached_of(both, word) for word in SPEC.situations}


def test_recordings_that_tell_nothing_of_situations_have_no_table() -> None:
    summary = summarise([samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(3))], 1)
    assert [] == coverage.coverages(summary)
    assert [] == coverage.lines(summary)
    assert "What the workloads reached" not in report_html(summary, {})


def test_each_workload_says_how_much_it_reached() -> None:
    both = [scenario_reaching("life", [(of_sqlite.SPILLED, 0, 100)]), scenario_reaching("creation", [])]
    lines = [line.split(" of ")[0] for line in coverage.lines(summarise(both, 1))]
    assert ["sqlite, creation: 1", "sqlite, life: 2"] == lines


def test_the_answer_names_what_no_workload_reached() -> None:
    every = [*situations.OF_TRANSACTIONS, *SPEC.situations, *situations.of_events(SPEC.events)]
    life = scenario_reaching("life", [(word, 0, 100) for word in every if word != "reopen"])
    ledger = scenario_reaching("ledger", [(of_sqlite.SPILLED, 0, 100)])
    missing = ["reopen", *(word for word in SPEC.met if word != of_sqlite.LOG)]
    answer = table_text(summarise([life, ledger], 1), 2000).splitlines()[-1]
    assert answer.endswith(
        f" Situations not reached: sqlite: {', '.join(missing[:4])}, {len(missing) - 4} more (see the report)."
    )
    met = [replace(row, met=", ".join(SPEC.met)) for row in ledger.verdicts]
    both = [life, replace(scenario_reaching("creation", [("reopen", 0, 100)]), verdicts=tuple(met))]
    assert "Situations not reached" not in table_text(summarise(both, 1), 2000)


def test_the_answer_names_a_program_that_was_kept_without_pages_that_are_early() -> None:
    made = samples.measured_scenario(samples.sqlite("wal", "full"), [samples.verdict()])
    own = samples.changed(made, tuning={"program": "store"})

    def answer(*scenarios: MeasuredScenario, result: Result = Result.KEPT) -> str:
        summary = summarise(scenarios, 1)
        # The samples have no control, so a promise is kept only by a row that says so.
        rows = [replace(row, judgement=replace(row.judgement, result=result)) for row in summary.rows]
        return coverage.not_written_back(replace(summary, rows=tuple(rows)))

    assert answer(own) == (
        " Not tried: pages that reach the disk before they are synced. "
        "`--neighbour writeback` measures store with such pages."
    )
    assert "" == answer(own, result=Result.BROKEN)
    early = samples.changed(own, tuned="writeback")
    assert "" == answer(own, early)
    assert "measures other with" in answer(samples.changed(own, tuning={"program": "other"}), early)
    # A database that comes with the rig; a fault and a file system without such pages.
    unfit = [made, samples.changed(own, fault="oscrash"), samples.changed(own, filesystem="nfs")]
    assert [""] * 3 == [answer(each) for each in unfit]
