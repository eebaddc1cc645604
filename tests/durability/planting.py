"""Bugs planted in SQLite, harmless twins of them, and what the rig finds of each.

Each patch in `planted/` changes `sqlite3.c` of one release. The lines above the change say what a careless maintainer
thought, what breaks, where, which situation it needs, the settings that it is measured with, and what an explanation
has to name. The patch of a twin begins with "Harmless".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rig.contract.errors import HostError
from rig.contract.findings import FindingKind
from rig.contract.scenario import is_default
from rig.planning import matrix
from rig.planning.defaults import FURTHER, FURTHER_OF_FEW
from rig.planning.matrix import Profile

# Import modules that need numpy or a machine where they are used, so that collection takes only milliseconds.
if TYPE_CHECKING:
    from rig.contract.findings import Finding
    from rig.contract.results import MeasuredScenario
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.machines.guests import Source

PROFILE = matrix.profile("quick")
FAULTS = ("powercut", "torn")
# Workload and fault of what is measured of a patch: with the plain workload, in a life, and of a build what is measured
# further.
Way = tuple[str, str]
WAYS: Mapping[str, Sequence[Way]] = {
    "ledger": [("ledger", fault) for fault in FAULTS],
    "life": [("life", fault) for fault in FAULTS],
    "further": sorted((FURTHER | FURTHER_OF_FEW) - {("life", fault) for fault in FAULTS}),
}
_HEAD = re.compile(r"^(\w+): (.+?)(?=\n\w+: |\n\n)", re.DOTALL | re.MULTILINE)
_SHOWN_MAX = 3


@dataclass(frozen=True)
class Planted:
    """One patch and what its head says."""

    patch: Path
    # The situation without which nothing breaks; empty for a twin.
    needs: str
    settings: str
    # What an explanation has to name: `no sync of FILE`, or `a write of FILE` where the order of writes or what a
    # recovery takes is wrong. Empty for a twin.
    cause: str
    is_harmless: bool

    @property
    def name(self) -> str:
        """Return the name of the patch."""
        return self.patch.stem


@dataclass(frozen=True)
class Found:
    """What a scenario showed of a patch, and the judgement on it."""

    scenario: str
    result: str
    state_count: int
    file_content_count: int
    # The states that break the promise, and which of all states, in the order of the recording, is the first of them.
    breaking_count: int
    first: int | None
    # Why, and the first few states that break the promise.
    reasons: str

    def __str__(self) -> str:
        counted = f"{self.scenario} {self.breaking_count} of {self.state_count}"
        if self.first:
            return f"{counted}, number {self.first} is the first"
        return counted + ("" if self.result == "kept" else f" ({self.result})")


def all_planted() -> list[Planted]:
    """Return all patches, by name."""
    from tests.durability import builds

    return [_parse(path) for path in sorted(builds.PLANTED.glob("*.patch"))]


def libraries(wanted: Sequence[Planted]) -> dict[str, Library]:
    """Return the patched builds, by the name of the patch; compile those that the cache lacks."""
    from tests.durability import builds

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda one: builds.patch_build(one.patch), wanted)
        return dict(zip((one.name for one in wanted), found, strict=True))


def scenarios(one: Planted, ways: Sequence[Way], library: str, profile: Profile = PROFILE) -> list[Scenario]:
    """Return the scenarios of a patch, one for each workload and fault."""
    variants = [("" if is_default(workload) else f".{workload}", fault) for workload, fault in ways]
    chosen = matrix.select([f"sqlite-ext4-{one.settings}{variant}_{fault}" for variant, fault in variants])
    return matrix.configure(chosen, profile, library=library)


def work_through(one: Planted, library: Library, folder: Path) -> Finding:
    """Carry out the workload `life` on this machine, without any cut; return what the database shows at its end."""
    from rig.guest.programs.connections import Connections
    from rig.guest.site import Site

    # The driver looks for a name in the guest's folder, and takes a path as it is.
    site = Site(scenarios(one, WAYS["life"], str(library.path))[0].orders, str(folder), "", "")
    work = site.work
    connections = Connections(site, mark=lambda _: None, idle=lambda _: None)
    connections.create()
    for number in range(2, site.orders.transaction_count + 1):
        for event in work.events(number):
            connections.happen(event)
        connections.commit(work.transaction(number))
        connections.note_acknowledgement()
    connections.close()
    return work.oracle().judge(site.open_database)


def needs_cut(one: Planted, library: Library, folder: Path) -> bool:
    """Whether all of `life` is there at its end as long as the power stays, so that only a cut can show the bug."""
    from rig.engines.sqlite.library import LibraryError

    try:
        found = work_through(one, library, folder)
    except LibraryError:
        # The engine has found the damage itself.
        return False
    return (FindingKind.PREFIX, PROFILE.transaction_count) == (found.kind, found.recovered)


def measure(wanted: Sequence[Scenario], source: Source, folder: Path, profile: Profile = PROFILE) -> list[Found]:
    """Measure the scenarios of a patch in a new run directory. Their controls are left to the tests of the matrix."""
    from rig.campaign import campaign
    from rig.store import Run

    run = Run.create(folder, {"library": wanted[0].tuning["library"]})
    campaign.Campaign(run, profile, source, campaign.Silent()).measure(wanted)
    results, damaged = run.results()
    if len(results) < len(wanted) or damaged:
        # A build that cannot even be recorded is no finding of a power cut.
        raise HostError("\n".join([*run.failures().values(), *map(str, damaged)]))
    return [_found_of(result, profile) for result in results]


def _found_of(result: MeasuredScenario, profile: Profile) -> Found:
    from rig.analysis.judging.metrics import outcome
    from rig.analysis.judging.outcome import judge
    from rig.analysis.judging.promises import promise_of

    seen = outcome(result)
    promise = promise_of(result.scenario)
    judgement = judge(seen, promise, profile.exposure_min)
    breaking = {verdict.state for verdict in judgement.broken_by}
    in_order = sorted(result.verdicts, key=lambda verdict: (verdict.entry, verdict.state))
    first = next((place for place, verdict in enumerate(in_order, 1) if verdict.state in breaking), None)
    shown = [f"{one.state}: {one.kind}, lost {one.lost}; {one.detail}" for one in judgement.broken_by[:_SHOWN_MAX]]
    reasons = "\n".join([*judgement.reasons, *shown])
    return Found(
        _way_of(result.scenario),
        judgement.result,
        seen.state_count,
        seen.exposure_count,
        len(judgement.broken_by),
        first,
        reasons,
    )


def _way_of(scenario: Scenario) -> str:
    return scenario.fault if is_default(scenario.workload_name) else f"{scenario.workload_name} {scenario.fault}"


def _parse(path: Path) -> Planted:
    head, _, _ = path.read_text().partition("--- a/")
    said = {key: " ".join(text.split()) for key, text in _HEAD.findall(head)}
    needs = said.get("Needs", "").removesuffix(".")
    return Planted(path, needs, said["Settings"], said.get("Cause", ""), head.startswith("Harmless"))
