"""Run directories with synthetic verdicts, in the form that the rig stores."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from rig.contract.orders import Shim
from rig.contract.results import MeasuredScenario
from rig.planning import matrix
from rig.store import Run


def stored(folder: Path, scenarios: Iterable[MeasuredScenario]) -> Path:
    """Store scenarios as a campaign does."""
    run = Run.create(folder, {"profile": "quick"})
    for measured in scenarios:
        (scenario,) = matrix.select([f"sqlite-ext4-{_name(measured)}_{measured.fault}"])
        recording = run.recording_folder(scenario)
        recording.mkdir(parents=True, exist_ok=True)
        (recording / "facts.json").write_text(json.dumps(asdict(measured.recording)))
        (recording / "log-a.zst").touch()
        run.write_plan(scenario, measured.plan)
        run.append(scenario.id, [replace(verdict, scenario=scenario.id) for verdict in measured.verdicts])
    return folder


def _name(scenario: MeasuredScenario) -> str:
    return "_".join(scenario.settings.values()) + ("+eatmydata" if scenario.shim == Shim.EATMYDATA else "")
