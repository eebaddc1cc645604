"""The sentences at the head of the report: faults with the same finding share one; of equal settings the weakest."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.judging.outcome import summarise
from rig.analysis.show.findings import findings
from rig.analysis.show.report import report_html
from rig.contract.results import MeasuredScenario
from tests.unit.samples import SECOND_NS, changed, controls_that_fire, durable, measured_scenario, sqlite


def lossless(journal_mode: str, synchronous: str, rate: float, fault: str = "powercut") -> MeasuredScenario:
    """A scenario that loses nothing, at this many transactions per virtual second."""
    return measured_scenario(
        sqlite(journal_mode, synchronous), durable(150), fault, busy_virtual_ns=round(40 / rate * SECOND_NS)
    )


def sentences(*scenarios: MeasuredScenario) -> list[str]:
    return findings(summarise([*controls_that_fire(), *controls_that_fire("torn"), *scenarios], 100))


def test_of_equally_fast_settings_the_one_that_syncs_least_is_named() -> None:
    (text,) = sentences(lossless("wal", "full", 256), lossless("wal", "extra", 260))
    assert "was lost: wal_full (wal_extra is as fast), 256 transactions per virtual second." in text
    (text,) = sentences(lossless("wal", "extra", 260), lossless("wal", "full", 250))
    assert "was lost: wal_extra, 260 transactions per virtual second." in text


def test_the_last_setting_counts_most_and_then_the_order_of_the_engines_own_choices() -> None:
    (text,) = sentences(
        lossless("delete", "extra", 100), lossless("truncate", "full", 100), lossless("wal", "full", 99)
    )
    assert "was lost: truncate_full (wal_full and delete_extra are as fast), 100 " in text


def test_faults_that_say_the_same_share_a_sentence() -> None:
    both = [lossless("wal", "full", 250, fault) for fault in ("powercut", "torn")]
    (text,) = sentences(*both)
    assert text.startswith("sqlite on ext4, powercut and torn, device ssd-sata: Fastest in which ")
    assert 1 == text.count("wal_full")
    powercut, torn = sentences(both[0], lossless("wal", "full", 500, "torn"))
    assert powercut.startswith("sqlite on ext4, powercut, device ssd-sata: ")
    assert torn.startswith("sqlite on ext4, torn, device ssd-sata: ")


def test_what_the_fastest_setting_loses_is_said_once_or_for_each_fault_where_it_differs() -> None:
    slow = [lossless("wal", "full", 20, fault) for fault in ("powercut", "torn")]
    (text,) = sentences(*slow)
    assert text.endswith("delete_off is 2 times as fast and lost up to 3, with damage 1 of 2 (<= 98 %).")
    more = measured_scenario(sqlite("delete", "off"), [*controls_that_fire("torn")[0].verdicts, *durable(2)], "torn")
    scenarios = [*controls_that_fire(), more, controls_that_fire("torn")[1], *slow]
    (text,) = findings(summarise(scenarios, 100))
    assert "lost up to 3, with damage 1 of 2 (<= 98 %), under powercut; up to 3, with damage 1 of 4 " in text
    assert text.endswith(", under torn.")


def test_where_nothing_is_kept_nothing_is_said() -> None:
    assert [] == findings(summarise(controls_that_fire(), 100))
    alone = summarise([lossless("wal", "full", 250)], 100)
    assert [] == findings(alone)


def test_settings_that_do_different_things_are_not_compared_by_speed() -> None:
    losing, kept = controls_that_fire()[0], lossless("wal", "full", 200)
    patterns = {"append-none": losing, "create-none": losing, "append-fsync": kept, "create-synced": kept}
    summary = summarise([as_pattern(one, name) for name, one in patterns.items()], 100)
    assert 2 == sum(row.judgement.result == "kept" and row.outcome.lost_max == 0 for row in summary.rows)
    assert [] == findings(summary)
    assert "Speed against loss" not in report_html(summary, {})


def as_pattern(scenario: MeasuredScenario, name: str) -> MeasuredScenario:
    recording = replace(scenario.recording, settings={"pattern": name})
    return changed(replace(scenario, recording=recording), engine="files", settings={"pattern": name})
