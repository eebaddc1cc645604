"""Several clients of a user's program: a bug of its group commit is found at any of them, and the mended one keeps all.

One program in two languages has both bugs and none: the seed chooses (`tests/vm/groups` and `groups.c`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from rig.analysis.explain.explanation import explain
from rig.analysis.explain.story import paragraph
from rig.analysis.judging.outcome import Result
from rig.analysis.judging.promises import promise_of, violates
from rig.campaign.evidence import of_recording, state_of
from rig.campaign.record import record
from rig.contract.results import VerdictKind
from rig.engines import engine_named
from rig.engines.builds import Library, library_for
from rig.host import processes
from rig.machines.guests import Machines, guests
from rig.planning import matrix
from rig.planning.tunings import with_clients
from rig.recordings.timeline import Timeline
from tests.vm.programruns import measured_program
from tests.vm.samples import open_recording, verdicts

FOLDER = Path(__file__).parent
PROFILE = replace(matrix.profile("quick"), states_max=40, side_states_max=40, instants=16)
COUNT, CLIENTS = 24, 4
# A follower leaves before its leader's sync is over; a leader takes for synced what was written during its sync.
LEAVES_EARLY, TAKES_ALL, MENDED = range(1, 4)


@pytest.fixture(scope="module", autouse=True)
def own_cache(cache: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIG_CACHE", str(cache))
        yield


@pytest.fixture(scope="module", params=["python", "c"])
def program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Library, Machines]]:
    """Give the program in a language, and its machines."""
    path = FOLDER / "groups"
    if request.param == "c":
        path = tmp_path_factory.mktemp("c") / "groups"
        command = ["cc", "-static", "-pthread", "-Werror", "-o", str(path), str(FOLDER / "groups.c")]
        processes.run(command, timeout_s=60)
    library = replace(library_for({"program"}, str(path)), client_count=CLIENTS)
    scenario = next(iter(matrix.scenarios_of([engine_named("program")])))
    with guests([library]) as source:
        yield library, source.of(replace(scenario, tuning={"library": library.name}))


@pytest.mark.parametrize(("seed", "is_broken"), [(LEAVES_EARLY, True), (TAKES_ALL, True), (MENDED, False)])
def test_what_a_group_commit_acknowledges_too_early_is_lost(
    seed: int, is_broken: bool, program: tuple[Library, Machines], tmp_path: Path
) -> None:
    library, machines = program
    offered = {scenario.id: scenario for scenario in matrix.scenarios_of([engine_named("program")])}
    scenario = with_clients(offered["program-ext4-durable_atomic.clients_powercut"], CLIENTS)
    workload = replace(scenario.workload, transaction_count=COUNT, think_ms=20)
    scenario = replace(scenario, workload=workload, seed=seed, tuning={"library": library.name})
    recording = record(scenario, machines.recorder, tmp_path)
    judged = verdicts(scenario, recording, machines.checker, PROFILE)
    promise = promise_of(scenario)
    assert promise
    losses = [verdict for verdict in judged if violates(promise, verdict)]
    assert is_broken is bool(losses), Counter((each.kind, each.detail) for each in judged)
    assert not any(verdict.kind.is_infrastructure for verdict in judged)
    assert all("of 4 clients" in verdict.detail for verdict in losses if verdict.kind is VerdictKind.LOST_SUFFIX)
    if is_broken:
        worst = max(losses, key=lambda verdict: verdict.lost)
        with of_recording(scenario, recording, machines) as evidence:
            why = explain(evidence, state_of(evidence, worst.state), worst, 30)
        assert "Which calls are behind it is not known" in paragraph(why)
        paths = {write.path for writes in why.lost for write in writes} | {
            change.path for writes in why.lost for write in writes for change in write.changes
        }
        assert "data/log" in paths, paragraph(why)
    with open_recording(recording) as (_, log):
        timeline = Timeline(log.marks)
    steps = [{"begin": 1, "ack": -1}.get(moment.kind, 0) for moment in timeline.moments]
    assert (CLIENTS, COUNT) == (max(accumulate(steps)), len(timeline.acks))


def test_several_clients_keep_a_promise_if_their_control_loses_something(tmp_path: Path) -> None:
    text = (FOLDER / "groups").read_text()
    summary = measured_program(tmp_path, text, "powercut", "durable,atomic", clients=CLIENTS, seed=MENDED)
    assert all(control.fired for control in summary.controls), summary.controls
    (row,) = (row for row in summary.rows if not row.is_sabotaged)
    assert Result.KEPT is row.judgement.result, row.judgement
    assert "durable_atomic.clients4" == row.outcome.scenario.settings_name
