"""A file system behind a server in machines: it keeps what its client synced, unless it answers before it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.documents import guestprobes
from rig.campaign import fileprobe
from rig.campaign.record import record
from rig.contract.findings import Finding
from rig.contract.results import LiveFinding
from rig.contract.scenario import Scenario
from rig.faults import Fault, Logs, plan
from rig.machines.guests import Machines, guests
from rig.planning import matrix
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from tests.vm.samples import SHORT, findings, open_recording


def scenario_on(word: str, settings: str = "wal_full") -> Scenario:
    (scenario,) = matrix.select([f"sqlite-{word}-{settings}_powercut"])
    return replace(scenario, workload=SHORT)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with guests() as source:
        yield source.of(scenario_on("nfs"))


def cut(word: str, machines: Machines, folder: Path, settings: str = "wal_full") -> list[tuple[int, Finding]]:
    """Record a scenario and cut it: how many transactions were acknowledged at each cut, and what came back."""
    scenario = scenario_on(word, settings)
    record(scenario, machines.recorder, folder)
    recording = archive.load(folder)
    assert recording
    assert {"vers=4.2", "async" if "async" in word else "sync"} <= set(recording.facts.filesystem["mount"].split(","))
    with open_recording(recording) as (_, log):
        timeline = Timeline(log.marks)
        states = plan(Fault.POWERCUT, Logs(log), first_entry=timeline.setup.entry_index, states_max=16, seed=1).states
        found = findings(scenario, machines.verifier, log, states)
        return [(timeline.acked_count(state.instant), one) for state, one in zip(states, found, strict=True)]


@pytest.mark.representative
def test_what_a_client_synced_is_on_the_disk_of_its_server(machines: Machines, tmp_path: Path) -> None:
    found = cut("nfs", machines, tmp_path / "recording")
    assert {"prefix"} == {one.kind for _, one in found}
    assert all(acked <= (one.recovered or 0) for acked, one in found)
    assert len({one.recovered for _, one in found}) > 2, "all cuts are alike"


def test_what_a_client_did_not_sync_stays_with_it_as_the_rig_does_not_look(machines: Machines, tmp_path: Path) -> None:
    found = cut("nfs", machines, tmp_path / "recording", "wal_off")
    assert any((one.recovered or 0) < acked - 1 for acked, one in found if one.kind == "prefix")


@pytest.mark.representative
def test_a_server_that_answers_before_it_writes_loses_what_its_client_synced(
    machines: Machines, tmp_path: Path
) -> None:
    found = cut("nfs.async", machines, tmp_path / "recording")
    assert any(one.recovered is None or one.recovered < acked for acked, one in found)


def crash(word: str, settings: str, machines: Machines, folder: Path) -> list[LiveFinding]:
    """Record a client that outlives its server; return what the program on it had in the end, after each crash."""
    (scenario,) = matrix.select([f"sqlite-{word}-{settings}_servercrash"])
    found = list(record(replace(scenario, workload=SHORT), machines.recorder, folder).facts.live)
    assert 3 == len(found)
    return found


@pytest.mark.parametrize("settings", ["delete_full", "wal_full", "delete_off"])
def test_a_client_that_outlives_its_server_sends_again_what_that_has_lost(
    settings: str, machines: Machines, tmp_path: Path
) -> None:
    found = crash("nfs", settings, machines, tmp_path / "recording")
    assert [("prefix", one["acked"]) for one in found] == [(one["kind"], one["recovered"]) for one in found]
    assert all(one["acked_after"] > 0 for one in found), "the program did not go on"


@pytest.mark.parametrize("settings", ["delete_full", "wal_full"])
def test_a_server_that_called_committed_what_it_had_not_loses_it_and_its_client_cannot_help(
    settings: str, machines: Machines, tmp_path: Path
) -> None:
    found = crash("nfs.async", settings, machines, tmp_path / "recording")
    assert any(one["recovered"] is None or one["recovered"] < one["acked"] for one in found)


def test_a_new_client_sees_the_files_that_its_server_has(machines: Machines) -> None:
    found = fileprobe.figures(machines.verifier, "nfs", "client")
    assert found["server"] == found["client"] != found["empty"]


def test_two_hosts_do_not_share_a_log_and_two_processes_of_one_host_do(machines: Machines) -> None:
    found = fileprobe.figures(machines.verifier, "nfs", "sqlite.wal", guestprobes.__name__)
    for name in ("processes", "delete"):
        assert (24, 0) == (found[f"{name}_acked"], found[f"{name}_harm"])
    assert found["hosts_harm"] > 0
    assert found["exclusive_refused"] > 0
    assert 0 == found["exclusive_lost"] + found["exclusive_damaged"]
