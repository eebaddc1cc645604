"""Measure scenarios in a new run directory, or go on with one that was stopped; `run`, `sweep` and `claims` do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.contract.errors import StoreError
from rig.front.rundirs import NAME, REPORT, RUNS, runs

if TYPE_CHECKING:
    from rig.contract.results import Verdict
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.host.progress import Progress
    from rig.machines.guests import Guests, Machines
    from rig.planning.matrix import Profile
    from rig.shards import Shard
    from rig.store import Run


def measure(
    chosen: list[Scenario],
    wanted: Profile,
    run_dir: Path | None,
    *,
    build: Library | None = None,
    added: str = "",
    jobs: int = 0,
    workers: int = 0,
    dask: str = "",
    shard: Shard | None = None,
    retries: int = 0,
    fails: Callable[[Scenario, Verdict], bool] | None = None,
    patterns: Sequence[str] | None = None,
) -> Run:
    """Measure scenarios in a new run directory or a stopped run's, and return the run; `added` is printed first.

    Measure in `jobs` threads of this process, in worker processes, or on the workers of a Dask scheduler. Of a shard,
    measure only its own scenarios. What could not be measured is tried again, up to `retries` times; no verdict is ever
    judged again. Stop at the first verdict that `fails`. `patterns` are what the user named scenarios with.
    """
    from rig.campaign import campaign
    from rig.campaign.executors.cluster import ROOM, Cluster, connection
    from rig.engines import load
    from rig.front.progress import show
    from rig.front.rehearsal import void_if_it_never_opens
    from rig.machines.guests import guests
    from rig.shards import definition_of, split

    with show() as progress, guests([build] if build else [], progress.says) as source, ExitStack() as stack:
        client = stack.enter_context(connection(workers, dask)) if workers or dask else None
        chosen = source.able(chosen) if build else chosen
        own = split(chosen, wanted, shard.count)[shard.number - 1] if shard else chosen
        templates = _templates(own, source)
        for line in filter(None, (added, *(_introduction(own, wanted, templates) if own else ()))):
            progress.says(line)
        definition = _definition(chosen, wanted, templates) | {"library": build.name if build else ""}
        if patterns is not None:
            definition["patterns"] = list(patterns)
        target = _target_run(run_dir, definition_of(definition, shard, own) if shard else definition, progress)
        first_id = min(scenario.id for scenario in chosen)

        def measure_all(scenarios: list[Scenario]) -> None:
            executor = Cluster(source, client, progress.says, ROOM if dask else 0) if client else None
            campaign.Campaign(target, wanted, source, progress, jobs, fails, executor).measure(scenarios, first_id)

        measure_all(own)
        for _ in range(retries):
            if not (again := [scenario for scenario in own if target.note_retry(scenario.id)]):
                break
            progress.says(f"measured again: {', '.join(scenario.id for scenario in again)}")
            measure_all(again)
        if build and load(chosen[0].engine_module).own_driver:
            void_if_it_never_opens(target, own, build, progress.says)
    return target


def _templates(chosen: list[Scenario], source: Guests) -> dict[str, Machines]:
    """Return the templates that the scenarios need, by name; make what the cache lacks before anything is measured."""
    from rig.machines.guests import name_of

    return {name: source.of(scenario) for name, scenario in sorted({name_of(item): item for item in chosen}.items())}


def _introduction(chosen: list[Scenario], profile: Profile, templates: dict[str, Machines]) -> list[str]:
    """Return lines with everything that decides the outcome of a run: if it is the same, so is the outcome."""
    from rig.machines.template import qemu_version

    scenario = chosen[0]
    library = scenario.tuning.get("library", "")
    build = f"library {library}" if library else "the guest's own builds"
    states_max, instants = profile.states_max_of(scenario), profile.instants_of(scenario)
    counts = f"up to {states_max} states and {instants} cut instants each at first, more if they show too little"
    begin = f"{extent(chosen)}, {counts}"
    words = f"{begin}: profile {profile.name}, device {scenario.device.name}, seed {scenario.seed}, {build}"
    of_images = [
        f"image {each.recorder.image}; templates: recorder {each.recorder.identity}, "
        f"verifier {each.verifier.identity}, checker {each.checker.identity}; {qemu_version()}"
        for each in templates.values()
    ]
    return [words, *of_images]


def extent(scenarios: list[Scenario]) -> str:
    """Return how many scenarios there are, and from how many recordings they are cut."""
    recordings = len({scenario.recording_key for scenario in scenarios})
    return f"{_count_text(len(scenarios), 'scenario')} from {_count_text(recordings, 'recording')}"


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _definition(chosen: list[Scenario], profile: Profile, templates: dict[str, Machines]) -> dict[str, Any]:
    """Return what must be equal for a run to be resumed."""
    return {
        "profile": profile.name,
        "states": profile.states_max,
        "instants": profile.instants,
        "scenarios": [scenario.id for scenario in chosen],
        **({"focus": focus} if (focus := max(scenario.focus for scenario in chosen)) else {}),
        "orders": {scenario.id: asdict(scenario.orders) for scenario in chosen},
        "templates": {
            name: [template.recorder.identity, template.verifier.identity, template.checker.identity]
            for name, template in templates.items()
        },
    }


def _say_why_not(folder: Path, definition: dict[str, Any], progress: Progress) -> None:
    """Say that a stopped run is not resumed if only its machines differ: the cache may have dropped them."""
    from rig.store import Run

    with suppress(StoreError):
        if not (folder / REPORT).exists() and Run.open(folder).differing(definition) == ["templates"]:
            progress.says(f"the stopped run in {folder} is not resumed: its machines are gone from the cache")


def _target_run(run_dir: Path | None, definition: dict[str, Any], progress: Progress) -> Run:
    from datetime import datetime

    from rig.store import Run

    if run_dir:
        return Run.create(run_dir, definition)
    for folder in runs():
        try:
            run = Run.create(folder, definition)
        except StoreError:
            _say_why_not(folder, definition, progress)
            continue
        if not (folder / REPORT).exists():
            progress.says(f"resuming the stopped run in {folder}")
            return run
    name = datetime.now().strftime(NAME)  # noqa: DTZ005 - see NAME
    progress.says(f"run directory {RUNS / name}")
    return Run.create(RUNS / name, definition)
