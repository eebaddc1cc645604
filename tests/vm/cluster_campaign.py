"""A campaign on a scheduler and workers on loopback, in trouble, held against local threads.

`python -m tests.vm.cluster_campaign` measures 60 scenarios four times: in threads and on two workers without trouble,
which gives the overhead; then on three workers in trouble, and in threads from the same recordings, whose verdicts must
be equal, row for row. `--scenarios N` measures fewer, `--profile NAME` looks closer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from rig.campaign.campaign import Campaign
from rig.campaign.executors.cluster import ROOM, Cluster, connection
from rig.contract.scenario import Scenario
from rig.machines.guests import Source, guests
from rig.machines.limit import descendants
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

_DASK = Path(sys.executable).with_name("dask")
_LIMIT_S = 120
_POLL_S = 0.1


@dataclass
class Heard:
    """What a campaign printed, and how many verdicts it has."""

    lines: list[str] = field(default_factory=list)
    judged_count: int = 0

    def says(self, text: str) -> None:
        self.lines.append(text)

    def expect(self, cut_count: int) -> None:
        pass

    def advance(self, cut_count: int) -> None:
        self.judged_count += cut_count


class Yard:
    """A scheduler and workers, each a process of this host; the workers share a cache that is not ours."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._file = folder / "scheduler.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self._file))
        wait_for(self._file.exists)
        self.address = str(json.loads(self._file.read_text())["address"])

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker with one thread; it dies for good if it is killed."""
        words = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0")
        return self._start("worker", "--scheduler-file", str(self._file), "--host", "127.0.0.1", *words)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            own = {"RIG_CACHE": str(self._folder / "cache"), "DASK_TEMPORARY_DIRECTORY": str(self._folder)}
            process = subprocess.Popen(
                [_DASK, *words, "--no-dashboard"],
                env=os.environ | own,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._stack.callback(end, process)
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(_LIMIT_S / 4)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def yard() -> Iterator[Yard]:
    with tempfile.TemporaryDirectory(prefix="rig-yard.", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        yield Yard(Path(folder), stack)


def wait_for(holds: Callable[[], object], limit_s: float = _LIMIT_S) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, "it does not come about"
        time.sleep(_POLL_S)


@dataclass
class Trouble:
    """Kill one worker in the middle of a task, stop another one for some time, and add a third later."""

    workers: Yard
    client: Any
    heard: Heard
    pause_s: float
    # The process of each worker that is left alone so far.
    pids: dict[str, int]
    error: Exception | None = None
    # The processes of the machines of the killed worker.
    orphans: Sequence[Path] = ()

    def make(self) -> None:
        try:
            wait_for(lambda: self.heard.judged_count, 10 * _LIMIT_S)
            killed, self.orphans = self._busy_worker()
            os.kill(killed, signal.SIGKILL)
            stopped, _ = self._busy_worker()
            os.kill(stopped, signal.SIGSTOP)
            try:
                self.workers.start_worker()
                time.sleep(self.pause_s)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(stopped, signal.SIGCONT)
        except Exception as error:  # noqa: BLE001 - shown in the other thread
            self.error = error

    def _busy_worker(self) -> tuple[int, list[Path]]:
        """Return the process of a worker in the middle of a task, and the processes of its machines."""
        before: dict[str, list[str]] = {}
        end_s = time.monotonic() + 10 * _LIMIT_S
        while time.monotonic() < end_s:
            now = {address: list(keys) for address, keys in self.client.processing().items()}
            for address, keys in now.items():
                is_busy = keys and keys == before.get(address) and address in self.pids
                if is_busy and (machines := machines_of(self.pids[address])):
                    return self.pids.pop(address), machines
            before = now
            time.sleep(_POLL_S)
        raise AssertionError("no worker is busy")


def machines_of(worker: int) -> list[Path]:
    """Return the processes of a worker's machines. A machine is a child of the thread that started it."""
    tasks = Path("/proc", str(worker), "task").iterdir()
    children = [number for task in tasks for number in (task / "children").read_text().split()]
    return [path for number in children for path in descendants(Path("/proc", number))]


def measure(
    folder: Path,
    source: Source,
    profile: Profile,
    scenarios: Sequence[Scenario],
    heard: Heard,
    *,
    client: Any = None,
    room: int = 0,
) -> Run:
    """Measure scenarios in two threads, or on the workers of a client."""
    run = Run.create(folder, {"profile": profile.name, "scenarios": [scenario.id for scenario in scenarios]})
    executor = Cluster(source, client, heard.says, room) if client else None
    Campaign(run, profile, source, heard, 2, executor=executor).measure(scenarios)
    return run


def measure_in_trouble(
    folder: Path, source: Source, profile: Profile, scenarios: Sequence[Scenario], pause_s: float
) -> tuple[Run, Heard, Trouble]:
    """Measure on three workers and a fourth that comes later; one is killed, one stopped for `pause_s` seconds."""
    heard = Heard()
    with yard() as place:
        for _ in range(3):
            place.start_worker()
        with connection(0, place.address) as client:
            client.wait_for_workers(3, timeout=_LIMIT_S)
            trouble = Trouble(place, client, heard, pause_s, dict(client.run(os.getpid)))
            maker = threading.Thread(target=trouble.make)
            maker.start()
            try:
                run = measure(folder, source, profile, scenarios, heard, client=client, room=ROOM)
            finally:
                maker.join()
    if trouble.error:
        raise trouble.error
    return run, heard, trouble


def judge_again(run: Run, folder: Path, source: Source, profile: Profile, scenarios: Sequence[Scenario]) -> Run:
    """Measure in threads from the recordings of a run."""
    shutil.copytree(run.folder / "recordings", folder / "recordings", ignore=shutil.ignore_patterns("lock"))
    for path in run.folder.glob("scenarios/*/recoveries"):
        shutil.copytree(path, folder / path.relative_to(run.folder))
    return measure(folder, source, profile, scenarios, Heard())


def rows(run: Run, scenarios: Sequence[Scenario]) -> dict[str, Counter[str]]:
    """The verdicts of each scenario, but for which of several equal states the database was opened on."""
    found = {}
    for scenario in scenarios:
        verdicts, damaged = run.verdicts(scenario.id)
        assert [] == damaged
        found[scenario.id] = Counter(json.dumps(asdict(replace(verdict, opened=True))) for verdict in verdicts)
    return found


def lost_words(heard: Heard) -> set[str]:
    """What the campaign said of the workers that it lost in the middle of a task."""
    words = ("is gone", "gives no sign of life")
    return {word for word in words for line in heard.lines if f"{word}; its task is begun again" in line}


@click.command()
@click.option("--scenarios", "count", default=60, show_default=True)
@click.option("--profile", "name", default="smoke", show_default=True)
@click.option("--pause-s", default=60, show_default=True)
def main(count: int, name: str, pause_s: int) -> None:
    """Measure, compare, and print the overhead."""
    profile = matrix.profile(name)
    chosen = matrix.configure(matrix.select(["sqlite-ext4-*"])[:count], profile)
    seconds = {}
    with guests(says=click.echo) as source, tempfile.TemporaryDirectory(prefix="rig-cluster.") as scratch:
        for scenario in chosen:
            source.of(scenario)
        for place, workers in (("threads", 0), ("workers", 2)):
            begin_s, used_s = time.monotonic(), time.process_time()
            with connection(workers, "") if workers else ExitStack() as client:
                of_cluster = client if workers else None
                run = measure(Path(scratch, place), source, profile, chosen, Heard(), client=of_cluster)
            seconds[place] = time.monotonic() - begin_s
            state_count = sum(counts.total() for counts in rows(run, chosen).values())
            used_s = time.process_time() - used_s
            stored = sum(path.stat().st_size for path in run.folder.glob("scenarios/*/verdicts.jsonl"))
            click.echo(f"{place}: {len(chosen)} scenarios, {state_count} verdicts, {seconds[place]:.1f} s")
            click.echo(f"{place}: {used_s:.1f} s of processor time in this process, {stored} bytes of verdicts")
            assert {} == run.failures(), run.failures()
        click.echo(f"overhead: {100 * (seconds['workers'] / seconds['threads'] - 1):.1f} %")
        run, heard, trouble = measure_in_trouble(Path(scratch, "trouble"), source, profile, chosen, pause_s)
        click.echo("\n".join(heard.lines))
        again = judge_again(run, Path(scratch, "again"), source, profile, chosen)
        ours, theirs = rows(again, chosen), rows(run, chosen)
        differing = [scenario for scenario in ours if ours[scenario] != theirs[scenario]]
        click.echo(f"failures: {run.failures()}; lost workers: {sorted(lost_words(heard))}")
        click.echo(f"rows: {sum(counts.total() for counts in ours.values())}; scenarios that differ: {differing}")
        click.echo(f"processes left of the killed worker: {[path.name for path in trouble.orphans if path.exists()]}")


if __name__ == "__main__":
    main()
