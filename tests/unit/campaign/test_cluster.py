"""The executor on a real Dask cluster in this process, with machines and verifications that are not real.

Tests in machines: `tests/vm/test_cluster.py`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rig.campaign.executors import cluster, roster, station
from rig.campaign.executors.cluster import Cluster
from rig.campaign.executors.executor import LocalThreads
from rig.campaign.verification import Job
from rig.contract.errors import DisagreementError, HostError, LegalityError, UsageError, VmError
from rig.contract.scenario import Scenario
from rig.faults import LogFile
from rig.planning import matrix
from rig.recordings import archive
from rig.recordings.archive import Recording
from tests.unit.campaign.fakes import (
    LIMIT_S,
    SHORT_S,
    Source,
    Verifier,
    busy_worker,
    machines_of,
    starting,
    stopping,
    wait_for,
)
from tests.unit.recordings.test_recording import FACTS, LOG

(SCENARIO,) = matrix.select(["sqlite-ext4-wal_full_powercut"])


@pytest.fixture(scope="module", autouse=True)
def warm_dask(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads that Dask keeps for the rest of the process."""
    import dask

    own = dask.config.set({"temporary-directory": str(tmp_path_factory.mktemp("dask"))})
    with own, dask_cluster(1) as local, cluster.connection(0, local.scheduler_address) as client:
        assert 3 == client.submit(sum, [1, 2]).result(timeout=LIMIT_S)


@contextmanager
def dask_cluster(count: int) -> Iterator[Any]:
    from distributed import LocalCluster

    begin: Any = LocalCluster
    with begin(
        n_workers=count, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0,
        protocol="tcp://", host="127.0.0.1",
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two workers, each with one thread."""
    import dask

    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cluster, "LOOK_S", SHORT_S)
    monkeypatch.setattr(roster, "LOOK_S", SHORT_S)
    with dask.config.set({"temporary-directory": str(tmp_path)}), dask_cluster(2) as made:
        yield made


@pytest.fixture
def client(workers: Any) -> Iterator[Any]:
    with cluster.connection(0, workers.scheduler_address) as made:
        yield made


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifier]:
    made = Verifier()
    monkeypatch.setattr(LocalThreads, "findings", made.findings)
    yield made
    made.gate.set()


@dataclass
class Campaign:
    """An executor, with threads that ask it as a campaign does."""

    executor: Cluster
    pool: ThreadPoolExecutor
    lines: list[str]

    def ask(self, *states: str, enough: threading.Event | None = None) -> Any:
        job = Job(SCENARIO, LogFile(Path("/nowhere/log")), tuple((state, None) for state in states))
        findings = self.executor.findings(job, enough or threading.Event(), is_emulated=False)
        return self.pool.submit(lambda: [finding.detail for finding in findings])


@contextmanager
def begun(client: Any, name: str = "whole") -> Iterator[Campaign]:
    lines: list[str] = []
    executor = Cluster(Source(machines_of(name)), client, lines.append)
    with ThreadPoolExecutor() as pool:
        try:
            executor.prepare([SCENARIO])
            yield Campaign(executor, pool, lines)
        finally:
            executor.stop()
            pool.shutdown(cancel_futures=True)
            executor.close()


def test_each_job_is_carried_out_once_and_alike_jobs_too(client: Any, verifier: Verifier) -> None:
    verifier.gate.set()
    with begun(client) as campaign:
        assert 2 == campaign.executor.machine_count
        others = [campaign.ask(f"{number}", "b") for number in range(12)]
        alike = [campaign.ask("alike") for _ in range(12)]
        assert [[f"{number}", "b"] for number in range(12)] == [job.result(LIMIT_S) for job in others]
        assert [["alike"]] * 12 == [job.result(LIMIT_S) for job in alike]
    assert {**{f"{number}": 1 for number in range(12)}, "b": 12, "alike": 12} == dict(verifier.counts)
    assert [] == campaign.lines


def test_an_error_of_a_task_reaches_the_campaign_as_it_is(client: Any, verifier: Verifier) -> None:
    verifier.gate.set()
    with begun(client) as campaign:
        for error in (DisagreementError("they differ"), TimeoutError("too busy")):
            verifier.error = error
            with pytest.raises(type(error), match=str(error)):
                campaign.ask("a").result(LIMIT_S)
    assert 2 == verifier.counts["a"]


def test_a_recording_of_a_worker_is_kept_as_it_was_made(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(threads: LocalThreads, _: Scenario, folder: Path, *, reproduce: bool) -> None:
        threads._says(f"recorded twice: {reproduce}")
        archive.save(folder, [LOG], FACTS)

    monkeypatch.setattr(LocalThreads, "record", record)
    with begun(client) as campaign:
        recording = campaign.executor.record(SCENARIO, tmp_path / "recording", reproduce=True)
    assert Recording(tmp_path / "recording", FACTS) == recording
    assert ["recorded twice: True"] == campaign.lines
    with recording.unpack() as file:
        assert LOG == file.path.read_bytes()[: len(LOG)]


def test_an_error_leaves_its_evidence_with_the_campaign_and_names_its_place(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(_: LocalThreads, __: Scenario, folder: Path, *, reproduce: bool) -> None:
        assert not reproduce
        (folder / "rounds").write_bytes(b"evidence")
        raise LegalityError(f"see {folder / 'rounds'}")

    monkeypatch.setattr(LocalThreads, "record", record)
    with begun(client) as campaign, pytest.raises(LegalityError, match=f"^see {tmp_path / 'kept' / 'rounds'}$"):
        campaign.executor.record(SCENARIO, tmp_path / "kept", reproduce=False)
    assert b"evidence" == (tmp_path / "kept" / "rounds").read_bytes()


def test_a_job_whose_worker_leaves_is_begun_again_elsewhere(client: Any, workers: Any, verifier: Verifier) -> None:
    with begun(client) as campaign:
        job = campaign.ask("a", "b")
        assert verifier.begun.acquire(timeout=LIMIT_S)
        busy = busy_worker(workers)
        workers.sync(busy.close, executor_wait=False)
        assert verifier.begun.acquire(timeout=LIMIT_S)
        verifier.gate.set()
        assert ["a", "b"] == job.result(LIMIT_S)
        assert 1 == campaign.executor.machine_count
    assert 2 == verifier.counts["a"]
    assert [f"worker {busy.address} is gone; its task is begun again"] == campaign.lines


def test_a_silent_worker_loses_its_job_and_its_late_answer_counts_for_nothing(
    client: Any, workers: Any, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "_SILENT_LOOKS", 60)
    with begun(client) as campaign:
        job = campaign.ask("a")
        assert verifier.begun.acquire(timeout=LIMIT_S)
        busy = busy_worker(workers)
        heart = busy.periodic_callbacks["heartbeat"]
        workers.sync(stopping, heart)
        assert verifier.begun.acquire(timeout=LIMIT_S)
        assert 1 == campaign.executor.machine_count
        verifier.gate.set()
        assert ["a"] == job.result(LIMIT_S)
        assert [f"worker {busy.address} gives no sign of life; its task is begun again"] == campaign.lines
        workers.sync(starting, heart)
        wait_for(lambda: 2 == campaign.executor.machine_count)
    assert 2 == verifier.counts["a"]


def test_a_worker_that_comes_later_gets_work(client: Any, workers: Any, verifier: Verifier) -> None:
    with begun(client) as campaign:
        jobs = [campaign.ask(f"{number}") for number in range(3)]
        for _ in range(2):
            assert verifier.begun.acquire(timeout=LIMIT_S)
        assert not verifier.begun.acquire(timeout=SHORT_S)
        workers.scale(3)
        assert verifier.begun.acquire(timeout=LIMIT_S)
        verifier.gate.set()
        assert [["0"], ["1"], ["2"]] == [job.result(LIMIT_S) for job in jobs]


def test_a_job_goes_on_if_its_only_worker_is_silent_for_a_while(
    client: Any, workers: Any, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "_SILENT_LOOKS", 60)
    with begun(client) as campaign:
        workers.scale(1)
        wait_for(lambda: 1 == campaign.executor.machine_count)
        job = campaign.ask("a")
        assert verifier.begun.acquire(timeout=LIMIT_S)
        (worker,) = workers.workers.values()
        heart = worker.periodic_callbacks["heartbeat"]
        workers.sync(stopping, heart)
        wait_for(lambda: not campaign.executor._roster.able)
        verifier.gate.set()
        assert ["a"] == job.result(LIMIT_S)
        workers.sync(starting, heart)
    assert 1 == verifier.counts["a"]


def test_a_task_that_loses_every_worker_is_an_error_of_its_own(
    client: Any, workers: Any, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_TRIES", 2)
    with begun(client) as campaign:
        job = campaign.ask("a")
        for _ in range(2):
            assert verifier.begun.acquire(timeout=LIMIT_S)
            busy = busy_worker(workers)
            workers.sync(busy.close, executor_wait=False)
        with pytest.raises(VmError, match=r"a task lost 2 workers; the last: worker .* is gone"):
            job.result(LIMIT_S)
        verifier.gate.set()


def test_enough_findings_end_a_job_that_waits(client: Any, verifier: Verifier) -> None:
    enough = threading.Event()
    with begun(client) as campaign:
        jobs = [campaign.ask("a", enough=enough) for _ in range(3)]
        for _ in range(2):
            assert verifier.begun.acquire(timeout=LIMIT_S)
        enough.set()
        assert [[], [], []] == [job.result(LIMIT_S) for job in jobs]
        verifier.gate.set()


def test_a_stopped_campaign_ends_its_jobs(client: Any, verifier: Verifier) -> None:
    with begun(client) as campaign:
        jobs = [campaign.ask("a", "b") for _ in range(3)]
        for _ in range(2):
            assert verifier.begun.acquire(timeout=LIMIT_S)
        campaign.executor.stop()
        for job in jobs:
            with pytest.raises(VmError, match="being stopped"):
                job.result(LIMIT_S)
        verifier.gate.set()


@pytest.mark.parametrize(
    ("name", "words"),
    [("rig", "has the rig other, and the campaign 0"), ("qemu", "has QEMU other, and the campaign Q")],
)
def test_a_worker_of_another_version_is_refused_by_name(
    name: str, words: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = station.examine()
    # The campaign asks first.
    change: dict[str, Any] = {name: "other"}
    hosts = itertools.chain([here], itertools.repeat(replace(here, **change)))
    monkeypatch.setattr(station, "examine", lambda: next(hosts))
    with pytest.raises(HostError, match=f"no worker can be used: .*{words}"), begun(client):
        pass


def test_a_worker_where_no_machine_answers_says_so_before_it_gets_work(client: Any) -> None:
    with pytest.raises(HostError, match="no machine runs there: it does not answer"), begun(client, "broken"):
        pass


def test_a_campaign_without_workers_ends_with_an_error(
    client: Any, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "_ALONE_S", 1)
    workers.scale(0)
    wait_for(lambda: not workers.workers)
    with pytest.raises(HostError, match="no worker came within 1 s"), begun(client):
        pass


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "nowhere", "tcp://nowhere.invalid:8786"])
def test_an_address_without_a_scheduler_is_a_wrong_use(address: str) -> None:
    with pytest.raises(UsageError, match=f"no Dask scheduler answers at {address}"), cluster.connection(0, address):
        pass
