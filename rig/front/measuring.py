"""Measure scenarios in a new run directory, or go on with one that was stopped; `run`, `sweep` and `claims` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.contract.errors import StoreError
from rig.front.rundirs import NAME, REPORT, RUNS, runs

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.host.progress import Progress
    from rig.machines.guests import Guests, Machines
    from rig.planning.matrix import Profile
    from rig.store import Run


def measured(
    chosen: list[Scenario],
    wanted: Profile,
    run_dir: Path | None,
    *,
    build: Library | None = None,
    added: str = "",
    jobs: int = 0,
) -> Run:
    """Measure scenarios in a new run directory or a stopped run's, and return the run; `added` is printed first."""
    from rig.campaign import campaign
    from rig.front.progress import shown
    from rig.machines.guests import guests

    with shown() as progress, guests([build] if build else [], progress.says) as source:
        templates = _templates(chosen, source)
        for line in filter(None, (added, *_introduction(chosen, wanted, templates))):
            progress.says(line)
        definition = _definition(chosen, wanted, templates) | {"library": build.name if build else ""}
        target = _target_run(run_dir, definition, progress)
        campaign.Campaign(target, wanted, source, progress, jobs).measure(chosen)
    return target


def _templates(chosen: list[Scenario], source: Guests) -> dict[str, Machines]:
    """Return the templates that the scenarios need, by name; make what the cache lacks before anything is measured."""
    from rig.machines.guests import name_of

    return {name: source.of(scenario) for name, scenario in sorted({name_of(one): one for one in chosen}.items())}


def _introduction(chosen: list[Scenario], profile: Profile, templates: dict[str, Machines]) -> list[str]:
    """Return lines with everything that decides the outcome of a run: if it is the same, so is the outcome."""
    from rig.machines.template import qemu_version

    scenario = chosen[0]
    library = scenario.tuning.get("library", "")
    build = f"library {library}" if library else "the guest's own builds"
    words = f"{extent(chosen)}: profile {profile.name}, device {scenario.device.name}, seed {scenario.seed}, {build}"
    of_images = [
        f"image {each.recorder.image}; templates: recorder {each.recorder.identity}, "
        f"verifier {each.verifier.identity}, checker {each.checker.identity}; {qemu_version()}"
        for each in templates.values()
    ]
    return [words, *of_images]


def extent(scenarios: list[Scenario]) -> str:
    """Return how many scenarios there are, and from how many recordings they are cut."""
    recordings = len({scenario.recording_key for scenario in scenarios})
    return f"{_counted(len(scenarios), 'scenario')} from {_counted(recordings, 'recording')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _definition(chosen: list[Scenario], profile: Profile, templates: dict[str, Machines]) -> dict[str, Any]:
    """Return what must be equal for a run to be resumed."""
    return {
        "profile": profile.name,
        "states": profile.states_max,
        "instants": profile.instants,
        "scenarios": [scenario.id for scenario in chosen],
        "orders": {scenario.id: scenario.orders.message for scenario in chosen},
        "templates": {
            name: [one.recorder.identity, one.verifier.identity, one.checker.identity]
            for name, one in templates.items()
        },
    }


def _target_run(run_dir: Path | None, definition: dict[str, Any], progress: Progress) -> Run:
    from datetime import datetime

    from rig.store import Run

    if run_dir:
        return Run.create(run_dir, definition)
    for folder in runs():
        try:
            found = Run.create(folder, definition)
        except StoreError:
            continue
        if not (folder / REPORT).exists():
            progress.says(f"resuming the stopped run in {folder}")
            return found
    name = datetime.now().strftime(NAME)  # noqa: DTZ005 - see NAME
    progress.says(f"run directory {RUNS / name}")
    return Run.create(RUNS / name, definition)
