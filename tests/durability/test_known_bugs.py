"""Known bugs of SQLite: each is found in a release that has it, and not in one that does not.

`pytest -k known_bug` runs these. They show that the rig can find bugs: if it found nothing in the bad release, it would
find nothing in the next one either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rig.contract.scenario import WorkloadSpec
from rig.front.pytest_plugin import Measured
from rig.planning import matrix
from rig.planning.matrix import Profile

# Import modules that need numpy or a machine where they are used, so that collection takes only milliseconds.
if TYPE_CHECKING:
    from rig.analysis.explain.explanation import Explanation
    from rig.analysis.judging.outcome import Row
    from rig.engines.builds import Library
    from rig.machines.guests import Machines

Say = Callable[[str, object], None]

# The cut must be possible before jbd2's commit, and the last transaction must get its 5 seconds.
_WORKLOAD = WorkloadSpec(transaction_count=10, think_ms=300, rest_ms=6000)
_LOOK = Profile("known-bug", _WORKLOAD.transaction_count, 60, 20, exposure_min=20, repeats="none")
_EXPLAIN_S = 60

_RACE = Path(__file__).with_name("wal_reset.py")
_TRIAL_S = 6
_TRIALS_MAX = 20
# The good release gets this many times the exposure that the bad one needed to fail, and at least the minimum below.
_EXPOSURE_FACTOR = 10
_CHECKPOINTS_MIN = 300
# What a trial may take on top of its own time, to make and read a large database.
_TRIAL_LIMIT_S = 240


def test_known_bug_of_truncate_loses_the_last_transaction_in_3_8_5_and_nothing_in_3_8_9(
    machines_with_builds: Machines, guests_builds: dict[str, Library], tmp_path: Path, record_property: Say
) -> None:
    from rig.analysis.judging.outcome import Result, summarise
    from rig.analysis.show.table import table_text
    from rig.campaign import campaign
    from rig.campaign.replay import replay
    from rig.store import Run

    def measure(version: str) -> tuple[Row, str]:
        (scenario,) = matrix.configure(
            matrix.select(["sqlite-ext4-truncate_full_powercut"]), _LOOK, library=guests_builds[version].name
        )
        run = Run.create(tmp_path / version, {"library": version})
        scenario = replace(scenario, workload=_WORKLOAD)
        campaign.Campaign(run, _LOOK, machines_with_builds, campaign.Silent()).measure([scenario])
        results, damaged = run.results()
        assert ({}, []) == (run.failures(), damaged)
        summary = summarise(results, _LOOK.exposure_min)
        (row,) = summary.rows
        assert version == row.outcome.measured.recording.engine_version.split()[0]
        text = table_text(summary)
        record_property(f"sqlite {version}", f"{row.outcome.losing_count} of {row.outcome.database_count} states lose")
        print(text)  # noqa: T201 - pytest captures it, and shows it with -rA, with -s and on failure
        return row, text

    bad, text = measure("3.8.5")
    assert (Result.BROKEN, 1, 0) == (bad.judgement.result, bad.outcome.lost_max, bad.outcome.damage.count), text
    assert "3.8.5 has the known bug truncate-not-synced" in text
    worst = bad.judgement.broken_by[0]
    again = replay(Run.open(tmp_path / "3.8.5"), worst.scenario, worst.state, machines_with_builds)
    assert (True, worst.kind) == (again.agrees, again.facts["verdict"])
    explanation = _explained(bad, tmp_path / "3.8.5", machines_with_builds)
    first = explanation.blames[0]
    assert ("journal", "truncate", "test.db-journal") == (first.missing, first.call.name, first.call.path)
    assert explanation.is_proven
    good, text = measure("3.8.9")
    assert 0 == good.outcome.losing_count == good.outcome.damage.count, text
    assert good.outcome.exposure_count >= _LOOK.exposure_min, text
    assert "known bug" not in text
    # The fix is one more sync per transaction.
    assert (bad.outcome.flush_per_transaction or 0) + 0.5 < (good.outcome.flush_per_transaction or 0)


def test_known_bug_of_a_savepoint_loses_what_was_committed_in_3_46_1_and_nothing_in_3_51_2(
    machines_with_builds: Machines, guests_builds: dict[str, Library], tmp_path: Path, record_property: Say
) -> None:
    """`life` leaves out the one transaction that meets this bug; `rough` has it."""
    from rig.analysis.explain.story import paragraph
    from rig.analysis.judging.outcome import Result, summarise
    from rig.analysis.show.table import table_text
    from rig.campaign import campaign
    from rig.store import Run

    def measure(library: str) -> tuple[Row, str]:
        chosen = matrix.select(["sqlite-ext4-wal_full.rough_powercut", "sqlite-ext4-wal_full.rough+eatmydata_powercut"])
        scenarios = [
            replace(one, workload=replace(one.workload, transaction_count=28, think_ms=300))
            for one in matrix.configure(chosen, _LOOK, library=library)
        ]
        run = Run.create(tmp_path / (library or "guest"), {"library": library})
        campaign.Campaign(run, _LOOK, machines_with_builds, campaign.Silent()).measure(scenarios)
        results, damaged = run.results()
        assert ({}, []) == (run.failures(), damaged)
        summary = summarise(results, _LOOK.exposure_min)
        row = next(row for row in summary.rows if row.outcome.settings_name == "wal_full.rough")
        text = table_text(summary, 400)
        version = row.outcome.measured.recording.engine_version.split()[0]
        record_property(f"sqlite {version}", f"{row.outcome.losing_count} of {row.outcome.database_count} states lose")
        print(text)  # noqa: T201 - pytest captures it, and shows it with -rA, with -s and on failure
        return row, text

    bad, text = measure("")
    assert Result.BROKEN == bad.judgement.result, text
    assert "3.46.1 has the known bug wal-savepoint" in text
    # Recovery ends before this commit, so pages that a checkpoint has copied stand alone until the WAL begins again. No
    # sync mends that.
    explanation = _explained(bad, tmp_path / "guest", machines_with_builds)
    record_property("explanation", paragraph(explanation))
    assert {"test.db"} == {write.path for writes in explanation.landed for write in writes}, paragraph(explanation)
    assert all("page" in write.role for writes in explanation.landed for write in writes)
    lost = [write for writes in explanation.lost for write in writes]
    names = {path for write in lost for path in (write.path, *(change.path for change in write.changes)) if path}
    assert names & {"test.db", "test.db-wal"} == names, paragraph(explanation)
    assert not explanation.is_proven, paragraph(explanation)
    good, text = measure(guests_builds["apsw==3.51.2.0"].name)
    assert (Result.KEPT, 0) == (good.judgement.result, good.outcome.losing_count), text
    assert "wal-savepoint" not in text


def _explained(row: Row, folder: Path, machines: Machines) -> Explanation:
    """Explain the worst state of a row."""
    from rig.analysis.explain.explanation import explain
    from rig.campaign import evidence
    from rig.store import Run

    worst = row.judgement.broken_by[0]
    with evidence.of_scenario(Run.open(folder), worst.scenario, machines) as found:
        return explain(found, evidence.state_of(found, worst.state), worst, _EXPLAIN_S)


@pytest.mark.durability("sqlite-ext4-delete_extra_powercut", "sqlite-ext4-delete_full_powercut")
def test_known_bug_by_design_delete_at_full_loses_the_last_transaction_and_extra_nothing(durability: Measured) -> None:
    print(durability.text())  # noqa: T201 - as above
    outcome = durability.row.outcome
    loses = outcome.scenario.settings["synchronous"] == "full"
    assert (loses, int(loses), 0) == (outcome.losing_count > 0, outcome.lost_max, outcome.damage.count)
    assert (outcome.instant_share_losing or 0) > 0 if loses else outcome.instant_share_losing == 0


def test_known_bug_of_the_wal_reset_is_found_in_3_51_2_and_not_in_3_51_3(tmp_path: Path, record_property: Say) -> None:
    from rig.analysis.judging.statistics import proportion

    needed, words = 0, ""
    for _ in range(_TRIALS_MAX):
        facts = _trial("3.51.2.0", tmp_path)
        needed += facts["checkpoints"]
        if words := facts["wrong"]:
            break
    else:
        limit = f"{_TRIALS_MAX} trials of {_TRIAL_S} s"
        pytest.fail(f"inconclusive: {needed} checkpoints in {limit} did not meet the race in 3.51.2", pytrace=False)
    record_property("3.51.2", f"{words} (after {needed} checkpoints)")
    exposure = 0
    while exposure < max(_CHECKPOINTS_MIN, _EXPOSURE_FACTOR * needed):
        facts = _trial("3.51.3.0", tmp_path)
        assert "" == facts["wrong"]
        exposure += facts["checkpoints"]
    record_property("3.51.3", proportion(0, exposure).text)
    print(f"3.51.2 {words}, after {needed} checkpoints; 3.51.3 {proportion(0, exposure).text}")  # noqa: T201 - as above


def _trial(version: str, folder: Path) -> dict[str, Any]:
    from rig.host import processes
    from tests.durability import builds

    database = folder / "race.db"
    argv = [sys.executable, str(_RACE), "trial", str(database), str(_TRIAL_S)]
    environment = {"PYTHONPATH": str(builds.apsw_of_the_host(version))}
    try:
        facts: dict[str, Any] = json.loads(processes.run(argv, timeout_s=_TRIAL_LIMIT_S, env=environment))
    finally:
        for path in folder.glob("race.db*"):
            path.unlink()
    assert version.startswith(facts["version"])
    return facts
