"""Run directories with synthetic verdicts, in the form that the rig stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rig.contract.orders import Shim
from rig.contract.results import MeasuredScenario
from rig.contract.scenario import Scenario
from rig.planning import matrix
from rig.store import Run


def store(folder: Path, scenarios: Iterable[MeasuredScenario], definition: Mapping[str, Any] | None = None) -> Path:
    """Store scenarios as a campaign does."""
    run = Run.create(folder, {"profile": "quick", **(definition or {})})
    for measured in scenarios:
        (scenario,) = matrix.select([f"sqlite-ext4-{_name(measured.scenario)}_{measured.scenario.fault}"])
        recording = run.recording_folder(scenario)
        recording.mkdir(parents=True, exist_ok=True)
        (recording / "facts.json").write_text(json.dumps(asdict(measured.recording)))
        (recording / "log-a.zst").touch()
        run.write_plan(scenario, measured.plan)
        run.append(scenario.id, [replace(verdict, scenario=scenario.id) for verdict in measured.verdicts])
    return folder


def _name(scenario: Scenario) -> str:
    return "_".join(scenario.settings.values()) + ("+eatmydata" if scenario.shim == Shim.EATMYDATA else "")
