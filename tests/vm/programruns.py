"""Measure a user's program and its control in machines, in a short run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from rig.analysis.judging.outcome import Summary, summarise
from rig.campaign import campaign
from rig.campaign.campaign import Silent
from rig.front import programs
from rig.host.progress import Progress
from rig.machines.guests import guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

_COUNT = 16
_BRIEF = Profile(
    "brief", _COUNT, 40, 0, exposure_min=10, repeats="none", side_transaction_count=_COUNT, side_states_max=40
)  # fmt: skip


def measured_program(
    folder: Path,
    text: str,
    fault: str,
    promise: str,
    neighbour: str | None = None,
    *,
    clients: int = 1,
    seed: int = 1,
    controls: bool = True,
    progress: Progress | None = None,
    repeats: Literal["all", "none"] = "none",
    image: Path | None = None,
    states: int = _BRIEF.states_max,
) -> Summary:
    """Measure a script under a fault; raise AssertionError if a scenario could not be measured.

    It counts as tested with a quarter as many contents as `states`.
    """
    (folder / "program").write_text(text)
    chosen = programs.select(
        str(folder / "program"), "ext4", [fault], promise, image,
        controls=controls, workload="own", neighbour=neighbour, clients=clients,
    )  # fmt: skip
    profile = replace(_BRIEF, repeats=repeats, states_max=states, side_states_max=states, exposure_min=states // 4)
    scenarios = matrix.configure(chosen.scenarios, profile, seed=seed, library=chosen.build.name, think_ms=200)
    run = Run.create(folder / "run", {})
    with guests([chosen.build]) as source:
        campaign.Campaign(run, profile, source, progress or Silent()).measure(scenarios)
    assert {} == run.failures()
    results, _ = run.results([scenario.id for scenario in scenarios])
    return summarise(results, profile.exposure_min)
