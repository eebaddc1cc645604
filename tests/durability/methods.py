"""How many bugs each method of crash testing finds, against the crash states that it judges.

    python -m tests.durability.methods FOLDER [NAME ...] [--seeds N] [--states N]

All methods choose crash states of the same recordings, which the same machines judge. NAME is a bug (`--help` lists
them); without names all are measured. FOLDER gets `methods.csv` (for each bug, method and seed the number of the first
state that breaks the promise, empty if none does), and `methods.png`; rows that `methods.csv` has are not measured
again. A bug with which the engine fails before any cut is left out, with a line that says so. The table goes to the
standard output.
"""

from __future__ import annotations

import csv
import random
import statistics
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import click

from rig.analysis.judging.promises import promise_of, violates
from rig.campaign.record import record
from rig.campaign.verdicts import live_verdicts, verdict
from rig.campaign.verification import Job, verify
from rig.contract.errors import EngineError
from rig.contract.findings import Finding
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines import settings_name
from rig.engines.builds import Library
from rig.faults import CrashState, Epoch, Logs, everything_unflushed_lost
from rig.faults.choosing.selection import in_turns
from rig.faults.states.state import is_told, landable, make_state, settled_prefix
from rig.machines.guests import Machines, guests
from rig.machines.pool import Pooled, Pools
from rig.planning import cuts, matrix
from rig.planning.cuts import Cut
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from tests.durability import builds, planting

_MACHINES = 2
# States that each seed of a method adds before all are judged.
_ROUND = 10
_PROFILE = matrix.profile("quick")
_FIELDS = ("bug", "method", "seed", "first")
Drawn = Callable[[Logs, int, random.Random], CrashState]


@dataclass(frozen=True)
class Bug:
    """A build or a setting that loses something, and the scenarios that share the recording in which it does."""

    name: str
    scenarios: tuple[Scenario, ...]

    @property
    def scenario(self) -> Scenario:
        """Return the scenario that is recorded and judged."""
        return self.scenarios[0]


@dataclass
class Search:
    """The crash states of one method and seed, and the first that broke the promise."""

    method: str
    seed: int
    cuts: Iterator[Cut]
    count: int = 0
    first: int | None = None


def strict(logs: Logs, entry: int, _: random.Random) -> CrashState:
    """Return the state of an instant in which everything is lost that was not flushed."""
    return everything_unflushed_lost(logs.first, logs.epochs, entry)


def prefix(logs: Logs, entry: int, _: random.Random) -> CrashState:
    """Return the state in which all writes up to an entry of the log landed, and none after it."""
    epoch = _epoch_at(logs, entry)
    landed = [member for member in settled_prefix(epoch) if member < entry]
    return make_state(epoch, bisect_left(epoch.fuas, entry), whole=landed)


def subset(logs: Logs, entry: int, chance: random.Random) -> CrashState:
    """Return a state of an instant in which each write that was not flushed landed with probability one half."""
    epoch = _epoch_at(logs, entry)
    fua_count = bisect_left(epoch.fuas, entry)
    # Before the last FUA write the log does not tell which members of the batch had completed.
    batch = landable(epoch) if fua_count == len(epoch.fuas) else ()
    ahead = [each for each in epoch.ahead_at(fua_count) if each not in epoch.fuas[fua_count : fua_count + 1]]
    return make_state(epoch, fua_count, whole=_half(batch, chance), ahead=_half(ahead, chance))


DRAWN: Mapping[str, Drawn] = {"strict": strict, "prefix": prefix, "subset": subset}
KILL, CUTS, PLANNED = "kill", "powercut", "planned"
METHODS = {
    KILL: "kill the process (SIGKILL), the power stays",
    "strict": "lose everything that was not flushed",
    "prefix": "replay a prefix of the log",
    "subset": "lose a random subset",
    CUTS: "the plan of the rig, power cuts alone",
    PLANNED: "the plan of the rig, power cuts and torn writes in turns",
}


def all_bugs() -> Mapping[str, Callable[[Mapping[str, Library]], Bug]]:
    """Return what makes each bug out of the builds for the guest, by name."""
    known = {
        "truncate-not-synced": ("truncate_full", "3.8.5", WorkloadSpec(10, 300, 6000)),
        "persist-normal-torn": ("persist_normal", "", None),
        "wal-savepoint": ("wal_full.rough", "", None),
    }
    planted = {one.name: partial(_planted, one) for one in planting.all_planted() if not one.is_harmless}
    return planted | {name: partial(_known, name, *facts) for name, facts in known.items()}


def _planted(patch: planting.Planted, libraries: Mapping[str, Library]) -> Bug:
    return Bug(patch.name, tuple(planting.scenarios(patch, planting.WAYS["life"], libraries[patch.name].name)))


def _known(
    name: str, settings: str, version: str, workload: WorkloadSpec | None, libraries: Mapping[str, Library]
) -> Bug:
    ids = [f"sqlite-ext4-{settings}_{fault}" for fault in planting.FAULTS]
    scenarios = matrix.configure(matrix.select(ids), _PROFILE, library=libraries[version].name if version else "")
    return Bug(name, tuple(replace(each, workload=workload or each.workload) for each in scenarios))


def _epoch_at(logs: Logs, entry: int) -> Epoch:
    epochs = logs.epochs
    return epochs[bisect_left(epochs, entry, key=lambda epoch: epoch.end)]


def _half(members: Sequence[int], chance: random.Random) -> list[int]:
    return [member for member in members if chance.random() < 0.5]


def _drawn_cuts(
    scenario: Scenario, logs: Logs, timeline: Timeline, draw: Drawn, chance: random.Random
) -> Iterator[Cut]:
    """Yield cuts at random entries after the setup, without end; the same content may come again."""
    while True:
        entry = chance.randrange(timeline.setup.entry_index + 1, logs.first.entry_count + 1)
        state = draw(logs, entry, chance)
        if state.instant > timeline.setup.entry_index and is_told(logs.first, state):
            yield Cut(scenario.id, state, logs.digest(state), state.instant, 0)


def _planned_cuts(bug: Bug, faults: Collection[str], logs: Logs, timeline: Timeline, seed: int) -> Iterator[Cut]:
    """Yield the cuts of a quick run in the order in which they are judged, of these faults in turns."""
    scenarios = [replace(each, seed=seed) for each in bug.scenarios if each.fault in faults]
    plans = [cuts.cuts(each, _PROFILE, logs, timeline).cuts for each in scenarios]
    return in_turns(*(sorted(plan, key=lambda cut: cut.turn) for plan in plans))


def search_all(bug: Bug, machines: Machines, pooled: Pooled, seeds: int, states: int) -> list[Search]:
    """Record a bug, and judge up to `states` states of each method and seed."""
    with tempfile.TemporaryDirectory(prefix="rig-methods-") as scratch:
        killed = _search_killed(bug, machines, Path(scratch, KILL), states)
        recording = record(bug.scenario, machines.recorder, Path(scratch, "cut"))
        return [*_search_states(bug, recording, pooled, seeds, states), killed]


def _search_states(bug: Bug, recording: Recording, pooled: Pooled, seeds: int, states: int) -> list[Search]:
    with recording.open() as logs, ThreadPoolExecutor(_MACHINES) as pool:
        timeline = Timeline(logs.first.marks)
        searches = [
            Search(name, seed, _drawn_cuts(bug.scenario, logs, timeline, draw, random.Random(f"{name} {seed}")))
            for name, draw in DRAWN.items()
            for seed in range(seeds)
        ]
        searches += [
            Search(name, seed, _planned_cuts(bug, faults, logs, timeline, seed))
            for name, faults in ((CUTS, {CUTS}), (PLANNED, planting.FAULTS))
            for seed in range(seeds)
        ]
        promise, findings = promise_of(bug.scenario), dict[str, Finding]()
        assert promise
        live = searches
        for _ in range(-(-states // _ROUND)):
            turn = [(each, list(islice(each.cuts, _ROUND))) for each in live]
            fresh = {cut.content: cut.state for _, batch in turn for cut in batch if cut.content not in findings}
            findings |= _judge(bug.scenario, logs, fresh, pooled, pool)
            for each, batch in turn:
                broken = [violates(promise, verdict(cut, findings[cut.content], timeline)) for cut in batch]
                if True in broken:
                    each.first = each.count + broken.index(True) + 1
                each.count += len(batch)
            live = [each for each, batch in turn if each.first is None and batch]
    return searches


def _judge(
    scenario: Scenario, logs: Logs, contents: Mapping[str, CrashState], pooled: Pooled, pool: ThreadPoolExecutor
) -> dict[str, Finding]:
    """Return the findings of contents, by digest."""
    ordered = sorted(contents.items(), key=lambda item: (item[1].base_end, item[1].id))
    size = -(-len(ordered) // _MACHINES) or 1
    parts = [ordered[begin : begin + size] for begin in range(0, len(ordered), size)]

    def check(part: Sequence[tuple[str, CrashState]]) -> list[Finding]:
        job = Job(scenario, logs.file, tuple((state.id, None) for _, state in part))
        return list(verify(job, pooled.checker, threading.Event(), pooled.verifier))

    findings = [each for part in pool.map(check, parts) for each in part]
    return dict(zip((content for content, _ in ordered), findings, strict=True))


def _search_killed(bug: Bug, machines: Machines, folder: Path, states: int) -> Search:
    """Kill the process as often as a recording does, and judge what it shows when it is started again.

    Kills know one workload, the plain one: each life goes on where the last one ended.
    """
    cut = bug.scenario
    plain = f"sqlite-ext4-{settings_name(cut.settings)}_processkill"
    (scenario,) = matrix.configure(matrix.select([plain]), _PROFILE, library=cut.tuning.get("library", ""))
    recording = record(scenario, machines.recorder, folder)
    promise = promise_of(scenario)
    assert promise
    broken = [violates(promise, each) for each in live_verdicts(scenario.id, recording.facts.live)[:states]]
    return Search(KILL, 0, iter(()), len(broken), broken.index(True) + 1 if True in broken else None)


def show(rows: Sequence[Mapping[str, str]], states: int, figure: Path) -> None:
    """Print for each bug and method the median number of the first state that shows it, and draw the curves."""
    firsts: dict[tuple[str, str], list[int | None]] = {}
    for row in rows:
        firsts.setdefault((row["bug"], row["method"]), []).append(int(row["first"]) if row["first"] else None)
    bugs = sorted({bug for bug, _ in firsts})
    # A table that was begun before a method was added lacks it.
    methods = [method for method in METHODS if all((bug, method) in firsts for bug in bugs)]
    click.echo(f"| bug | {' | '.join(methods)} |")
    click.echo("|---" * (1 + len(methods)) + "|")
    for bug in bugs:
        click.echo(f"| `{bug}` | {' | '.join(_cell(firsts[bug, method]) for method in methods)} |")
    _draw(firsts, bugs, methods, states, figure)


def _cell(firsts: Sequence[int | None]) -> str:
    """Return the median of the first states, with how many seeds find the bug unless all do."""
    hits = [each for each in firsts if each is not None]
    if len(hits) == len(firsts):
        return f"{statistics.median(hits):g}"
    return f"{len(hits)} of {len(firsts)} seeds" if hits else "-"


def _draw(
    firsts: Mapping[tuple[str, str], Sequence[int | None]],
    bugs: Sequence[str],
    methods: Sequence[str],
    states: int,
    path: Path,
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    numbers = range(1, states + 1)
    for method in methods:
        # A method without seeds has one curve.
        seeds = max(len(firsts[bug, method]) for bug in bugs)
        curves = [
            [
                sum((first := firsts[bug, method][seed]) is not None and first <= number for bug in bugs)
                for number in numbers
            ]
            for seed in range(seeds)
        ]
        by_number = [sorted(column) for column in zip(*curves, strict=True)]
        (line,) = axes.plot(numbers, [statistics.median(column) for column in by_number], label=METHODS[method])
        low, high = seeds // 20, seeds - 1 - seeds // 20
        axes.fill_between(
            numbers, [each[low] for each in by_number], [each[high] for each in by_number],
            alpha=0.2, color=line.get_color(), linewidth=0,
        )  # fmt: skip
    axes.set(
        xscale="log", xlabel="crash states judged, for each bug", ylabel=f"bugs found, of {len(bugs)}", ylim=(0, None)
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@click.command(help=f"Measure which method finds which bug.\n\nBugs: {', '.join(all_bugs())}.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1)
@click.option("--seeds", default=20, show_default=True, help="how often each method draws")
@click.option("--states", default=200, show_default=True, help="the most states of each method, bug and seed")
def main(folder: Path, names: tuple[str, ...], seeds: int, states: int) -> None:
    """Measure the bugs that FOLDER lacks, and show all."""
    known = all_bugs()
    if strangers := set(names) - set(known):
        raise click.UsageError(f"no such bug: {', '.join(sorted(strangers))}")
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "methods.csv"
    done = {row["bug"] for row in _read(table)}
    wanted = [name for name in names or known if name not in done]
    if wanted:
        patches = [each for each in planting.all_planted() if each.name in wanted]
        libraries = builds.for_the_guest() | planting.libraries(patches)
        pools = Pools()
        with guests(list(libraries.values())) as source:
            try:
                for name in wanted:
                    bug = known[name](libraries)
                    machines = source.of(bug.scenario)
                    try:
                        searches = search_all(bug, machines, pools.of(machines), seeds, states)
                    except EngineError as error:
                        click.echo(f"{name}: left out: {error}", err=True)
                        continue
                    _append(table, name, searches)
                    click.echo(f"{name}: {sum(each.count for each in searches)} states", err=True)
            finally:
                pools.close()
    if not (rows := _read(table)):
        raise click.ClickException("none of these bugs could be measured, so there is nothing to show")
    show(rows, states, folder / "methods.png")


def _append(path: Path, name: str, searches: Sequence[Search]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(_FIELDS)
        writer.writerows((name, each.method, each.seed, each.first or "") for each in searches)


if __name__ == "__main__":
    main()
