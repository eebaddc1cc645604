"""One summary of several runs."""

from __future__ import annotations

import json

from rig.analysis.judging.outcome import summarise, together
from tests.unit.samples import changed, durable, measured_scenario, sqlite


def test_of_several_runs_the_last_counts_on_each_device_and_every_row_knows_its_run() -> None:
    one = measured_scenario(sqlite("wal", "full"), durable(9))
    runs = {
        "old": one,
        "new": measured_scenario(sqlite("wal", "full"), durable(8)),
        "slow": changed(one, device="hdd5400"),
    }
    summary = together(summarise([found], 5, name) for name, found in runs.items())
    assert {("ssd-sata", "new", 8), ("hdd5400", "slow", 9)} == {
        (row.outcome.scenario.device.name, row.run_dir, row.outcome.exposure_count) for row in summary.rows
    }


def test_two_programs_and_two_ways_to_start_one_are_all_shown() -> None:
    plain = changed(measured_scenario(sqlite("wal", "full"), durable(9)), tuning={"program": "kvlog"})
    started = changed(plain, tuning={"program": "kvlog", "environment": json.dumps(["SYNC=off"])})
    other = changed(plain, tuning={"program": "mydb"})
    summary = together([summarise([each], 5) for each in (plain, started, other, plain)])
    assert [plain, started, other] == [row.outcome.measured for row in summary.rows]
    assert ["", " of kvlog", " of kvlog SYNC=off", " of mydb"] == [
        each.scenario.own_name.removeprefix(plain.scenario.id)
        for each in (changed(plain, tuning={}), plain, started, other)
    ]
