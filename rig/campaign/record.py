"""Make recordings: run a scenario in a recorder clone, prove that the recording is sound, and keep it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rig.contract.arms import SPECS
from rig.contract.errors import LegalityError, RecordingError
from rig.contract.injections import Injection
from rig.contract.results import LiveFinding
from rig.contract.scenario import Scenario
from rig.faults import LogError
from rig.filesystems import disks_mib, filesystem_named
from rig.host.files import atomic_write, require_space
from rig.machines.template import Template, qemu_version
from rig.recordings import archive, livecuts, soundness
from rig.recordings.archive import Recording
from rig.recordings.soundness import Origin

# Processor time: a hundred deaths of a server take more than fourteen minutes of it on a slow host.
_RECORD_LIMIT_S = 1800
_RUNS_MAX = 8
# Everything that live cuts left, kept if no honest disk could have left it.
_EVIDENCE = "illegal-rounds.bin"
# A log of the longest workload, uncompressed, and its archive.
_SPACE_BYTES = 256 << 20


def record(scenario: Scenario, template: Template, folder: Path, *, reproduce: bool = False) -> Recording:
    """Record a scenario into a folder; `reproduce` repeats it until two recordings agree, and notes whether they did.

    Two runs are enough on a quiet host. On a busy host a race in QEMU 7.2 can make recordings differ (see
    `rig.machines.machine.started`), so up to `_RUNS_MAX` runs are made. One of the two recordings that agree is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, _SPACE_BYTES, f"recording {scenario.id}")
    told, parts = run(scenario, template)
    reproduced: bool | None = None
    if reproduce:
        seen = [parts]
        for _ in range(1, _RUNS_MAX):
            told, parts = run(scenario, template)
            if reproduced := parts in seen:
                break
            seen.append(parts)
    path = folder / "log"
    if "rounds" in told:
        told["live"] = _proven_live(scenario, told, parts, folder)
    log_count = soundness.log_count(told)
    # A live cut has no block trace; what it left comes after its log.
    kept, traces = parts[:log_count], () if "rounds" in told else parts[log_count:]
    on_two = SPECS[scenario.fault].injection is Injection.TWODISK
    sizes_mib = disks_mib(filesystem_named(scenario.filesystem), on_two=on_two)
    origin = Origin(template.identity, template.image, qemu_version())
    try:
        with archive.write(kept, path, sizes_mib, traces, scenario.device.atomic_bytes).opened() as logs:
            facts = soundness.facts_of(scenario, origin, told, logs)
    except LogError as error:
        raise RecordingError(f"the recording of {scenario.id} is void: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    return archive.save(folder, kept, replace(facts, reproduced=reproduced), traces)


def record_live(scenario: Scenario, template: Template) -> list[LiveFinding]:
    """Run a scenario once more and return the findings of the run itself; keep nothing."""
    told, parts = run(scenario, template)
    found: list[LiveFinding] = livecuts.proven(scenario, told, parts) if "rounds" in told else told["live"]
    return found


def run(scenario: Scenario, template: Template) -> tuple[dict[str, Any], list[bytes]]:
    """Return the guest's report on a recording, and the parts: the log, or the logs, or what live cuts left."""
    parts = []
    orders = json.dumps(scenario.orders.message).encode()
    with template.clone(orders=orders) as machine:
        while "part_bytes" in (told := machine.receive(_RECORD_LIMIT_S)):
            part = bytearray()
            machine.receive_bytes(told["part_bytes"], _RECORD_LIMIT_S, part.extend)
            parts.append(bytes(part))
    return told, parts


def _proven_live(
    scenario: Scenario, told: Mapping[str, Any], parts: Sequence[bytes], folder: Path
) -> list[LiveFinding]:
    """Return the findings of live cuts; if no honest disk could leave this, keep everything and raise LegalityError."""
    try:
        return livecuts.proven(scenario, told, parts)
    except LegalityError as error:
        evidence = folder / _EVIDENCE
        atomic_write(evidence, b"".join(map(archive.packed, parts)))
        raise LegalityError(f"{error}; the logs and what remained are in {evidence}") from error
