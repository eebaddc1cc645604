"""What the protocol of programs can say: for each addition a program with a bug is found out, and the mended one not.

One program in two languages has all bugs and none: the seed chooses (`tests/vm/protocol` and `protocol.c`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.promises import promise_of, violates
from rig.campaign.record import record
from rig.campaign.verdicts import live_verdicts
from rig.contract.errors import UsageError
from rig.contract.faultspecs import ERROR_FAULTS
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines import engine_named
from rig.engines.builds import Library, library_for
from rig.faults import Logs
from rig.host import processes
from rig.machines.guests import Machines, guests
from rig.planning import cuts, matrix
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from tests.vm.samples import open_recording, verdicts

FOLDER = Path(__file__).parent
PROFILE = replace(matrix.profile("quick"), states_max=24, side_states_max=24, instants=8)
GOES_ON, TAKES_BACK, TRUSTS, COPIES, EMPTIES, REPLACES, HALVES, DROPS = range(1, 9)
TRIES_AGAIN = 10


@pytest.fixture(scope="module", params=["python", "c"])
def program(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    cache: Path,
) -> Iterator[tuple[Library, Machines]]:
    """Give the program in a language, and its machines."""
    path = FOLDER / "protocol"
    if request.param == "c":
        path = tmp_path_factory.mktemp("c") / "protocol"
        processes.run(["cc", "-static", "-Werror", "-o", str(path), str(FOLDER / "protocol.c")], timeout_s=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIG_CACHE", str(cache))
        library = library_for({"program"}, str(path))
        with guests([library]) as source:
            yield library, source.of(scenario_of(library, 1))


def scenario_of(library: Library, seed: int, fault: str = "powercut", promise: str = "durable") -> Scenario:
    offered = {scenario.id: scenario for scenario in matrix.scenarios_of([engine_named("program")])}
    # Little think time, so that an outage ends before the file system's journal aborts.
    workload = WorkloadSpec(transaction_count=9, think_ms=20, rest_ms=6000, name="own")
    scenario = offered[f"program-ext4-{promise}_{fault}"]
    return replace(scenario, workload=workload, seed=seed, tuning={"library": library.name})


def broken(scenario: Scenario, judged: list[Verdict]) -> list[Verdict]:
    promise = promise_of(scenario)
    assert promise
    losses = [verdict for verdict in judged if violates(promise, verdict)]
    # A file system whose journal has aborted in an outage may be damaged, and nothing follows from that.
    known = [verdict for verdict in judged if not verdict.kind.is_infrastructure]
    assert losses or 2 * len(known) > len(judged), Counter((verdict.kind, verdict.detail) for verdict in judged)
    return losses


def test_a_transaction_in_flight_may_be_torn_unless_atomic_is_promised_too(
    program: tuple[Library, Machines], tmp_path: Path
) -> None:
    library, machines = program
    for seed, promise, is_broken in (
        (HALVES, "durable", False),
        (HALVES, "durable_atomic", True),
        (DROPS, "durable_atomic", False),
    ):
        scenario = scenario_of(library, seed, promise=promise)
        recording = record(scenario, machines.recorder, tmp_path / f"{seed}-{promise}")
        losses = broken(scenario, verdicts(scenario, recording, machines.checker, PROFILE))
        assert is_broken is bool(losses), losses
        # Nothing was lost that had been acknowledged: only the transaction in flight breaks the promise.
        assert {verdict.kind for verdict in losses} <= {VerdictKind.TORN}


def test_all_cuts_hit_the_steps_that_are_in_focus_and_show_what_they_lose(
    program: tuple[Library, Machines], tmp_path: Path
) -> None:
    library, machines = program
    for seed in (EMPTIES, REPLACES):
        scenario = replace(scenario_of(library, seed), focus="compaction")
        recording = record(scenario, machines.recorder, tmp_path / str(seed))
        assert ["compaction"] * 2 == [name for name, _, _ in recording.facts.steps]
        judged = verdicts(scenario, recording, machines.checker, PROFILE)
        # A compaction is in flight, or has just been acknowledged.
        assert {verdict.acked for verdict in judged} <= {3, 4, 7, 8}, judged
        assert (seed == EMPTIES) is bool(broken(scenario, judged)), judged
        with open_recording(recording) as (_, log), pytest.raises(UsageError, match="steps are: compaction"):
            cuts.cuts(replace(scenario, focus="absent"), PROFILE, Logs(log), Timeline(log.marks))


def through_errors(
    program: tuple[Library, Machines], seed: int, fault: str, folder: Path
) -> tuple[Scenario, Recording, list[Verdict]]:
    library, machines = program
    scenario = scenario_of(library, seed, fault)
    recording = record(scenario, machines.recorder, folder)
    judged = live_verdicts(scenario.id, recording.facts.live)
    return scenario, recording, judged + verdicts(scenario, recording, machines.checker, PROFILE)


@pytest.mark.parametrize(("seed", "is_broken"), [(GOES_ON, True), (TAKES_BACK, False), (TRUSTS, True), (COPIES, False)])
def test_what_a_program_does_after_a_failed_sync_decides_what_it_loses(
    seed: int, is_broken: bool, program: tuple[Library, Machines], tmp_path: Path
) -> None:
    scenario, recording, judged = through_errors(program, seed, "ioerror-fsync", tmp_path)
    assert recording.facts.error_count
    assert recording.facts.live or seed in (GOES_ON, TAKES_BACK), "a program that ended was not started again"
    assert is_broken is bool(broken(scenario, judged)), Counter((each.kind, each.detail) for each in judged)


@pytest.mark.parametrize("program", ["python"], indirect=True)
def test_a_program_that_syncs_again_until_it_works_acknowledges_what_was_lost(
    program: tuple[Library, Machines], tmp_path: Path
) -> None:
    scenario, _, judged = through_errors(program, TRIES_AGAIN, "ioerror-fsync", tmp_path)
    losses = broken(scenario, judged)
    assert losses, Counter((each.kind, each.detail) for each in judged)
    # Its second sync succeeded before the power went.
    assert {verdict.kind for verdict in losses} <= {VerdictKind.LOST_SUFFIX, VerdictKind.HOLE}


# What a language does about a failed sync is tested in both.
@pytest.mark.parametrize("program", ["python"], indirect=True)
@pytest.mark.parametrize("fault", ERROR_FAULTS)
def test_a_program_that_takes_back_what_failed_loses_nothing_under_any_error(
    fault: str, program: tuple[Library, Machines], tmp_path: Path
) -> None:
    scenario, recording, judged = through_errors(program, TAKES_BACK, fault, tmp_path)
    assert recording.facts.error_count
    assert [] == broken(scenario, judged)
    # It went on after its first outage.
    assert max(verdict.acked for verdict in judged) >= 6
