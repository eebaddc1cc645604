"""Live cuts check the rig itself: what their scenarios show, and what their control needs."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import summarise
from rig.contract.results import LiveFinding
from tests.unit.samples import changed, durable, measured_scenario, sqlite


def test_a_live_cut_has_no_speed_and_stands_behind_the_rows_that_have_one() -> None:
    faults = ("livecut-cache", "livecut-drop", "powercut", "torn")
    rows = summarise([measured_scenario(sqlite("wal", "full"), durable(5), fault) for fault in faults], 1).rows
    assert ["powercut", "torn", "livecut-cache", "livecut-drop"] == [row.outcome.scenario.fault for row in rows]
    assert [True, True, False, False] == [row.outcome.transactions_per_s is not None for row in rows]


def test_a_few_live_cuts_are_exposure_enough() -> None:
    def doubts_of(fault: str) -> str:
        (row,) = summarise([measured_scenario(sqlite("wal", "full"), durable(5), fault)], 100).rows
        return " ".join(row.judgement.reasons)

    assert "exposure" in doubts_of("powercut")
    assert "exposure" not in doubts_of("livecut-drop")


def test_the_client_of_a_server_must_have_gone_on_after_each_crash() -> None:
    def fired(*acked_after: int) -> bool | None:
        live: list[LiveFinding] = [
            {
                "state": "live-1", "acked": 3, "issued": 4, "kind": "prefix", "recovered": 4, "detail": "",
                "acked_after": count,
            }
            for count in acked_after
        ]  # fmt: skip
        made = changed(measured_scenario(sqlite("wal", "full"), durable(1), "servercrash"), filesystem="nfs")
        made = replace(made, recording=replace(made.recording, live=tuple(live)))
        (control,) = check_controls([outcome(made)])
        assert "survival" == control.name
        return control.fired

    assert fired(2, 1)
    assert not fired(2, 0), "after one crash nothing was acknowledged"
    assert not fired()


def test_a_disk_that_drops_writes_must_have_dropped_some_that_were_acknowledged() -> None:
    def void_of(acked_after: int, recovered: int) -> bool | None:
        live: LiveFinding = {
            "state": "live-1", "acked": 3, "issued": 4, "kind": "prefix", "recovered": recovered, "detail": "",
            "acked_after": acked_after,
        }  # fmt: skip
        made = measured_scenario(sqlite("wal", "full"), durable(1), "livecut-drop")
        made = replace(made, recording=replace(made.recording, live=(live,)))
        (control,) = check_controls([outcome(made)])
        assert "void" == control.name
        return control.fired

    assert void_of(2, 3)
    assert not void_of(0, 3)
    # The transaction came back, so the disk did not drop it.
    assert not void_of(2, 5)
