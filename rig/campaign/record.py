"""Make recordings: run a scenario in a recorder clone, prove that the recording is sound, and keep it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rig.contract.errors import LegalityError, RecordingError
from rig.contract.faultspecs import SPECS
from rig.contract.injections import Injection
from rig.contract.results import LiveFinding
from rig.contract.scenario import Scenario
from rig.engines import load
from rig.faults import LogError
from rig.filesystems import disks_mib, filesystem_named
from rig.host.files import atomic_write, require_space
from rig.machines.template import Template, qemu_version
from rig.recordings import archive, livecuts, soundness
from rig.recordings.archive import Recording
from rig.recordings.soundness import Origin

# Processor time: a hundred deaths of a server take more than fourteen minutes of it on a slow host.
_RECORD_LIMIT_S = 1800
_RUNS_MAX, _RUNS_OF_OWN_MAX = 8, 2
# Everything that live cuts left, kept if no honest disk could have left it.
_EVIDENCE = "illegal-rounds.bin"
# A log of the longest workload, uncompressed, and its archive.
_SPACE_BYTES = 256 << 20


def record(
    scenario: Scenario,
    template: Template,
    folder: Path,
    says: Callable[[str], None] = lambda _: None,
    *,
    reproduce: bool = False,
) -> Recording:
    """Record a scenario into a folder; `reproduce` repeats it until two recordings agree, and notes whether they did.

    A user's program with threads may never repeat, so it is recorded twice only. `says` takes a line on each run.
    Two runs are enough on a quiet host. On a busy host a race in QEMU 7.2 can make recordings differ (see
    `rig.machines.machine.start`), so up to `_RUNS_MAX` runs are made. One of the two recordings that agree is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, _SPACE_BYTES, f"recording {scenario.id}")
    begin_s = time.monotonic()
    report, parts = run(scenario, template)
    reproduced: bool | None = None
    if reproduce:
        runs_max = _RUNS_OF_OWN_MAX if load(scenario.engine_module).own_driver else _RUNS_MAX
        seen = [parts]
        for number in range(2, runs_max + 1):
            says(
                f"recording {scenario.id} again, to see that it repeats: {number} of at most {runs_max}; "
                f"the last took {time.monotonic() - begin_s:.0f} s"
            )
            begin_s = time.monotonic()
            report, parts = run(scenario, template)
            if reproduced := parts in seen:
                break
            seen.append(parts)
        if not reproduced:
            says(f"{scenario.id} does not repeat: its {len(seen)} recordings differ; the last one is cut")
    path = folder / "log"
    if "rounds" in report:
        report["live"] = _proven_live(scenario, report, parts, folder)
    log_count = soundness.log_count(report)
    # A live cut has no block trace; what it left comes after its log.
    kept, traces = parts[:log_count], () if "rounds" in report else parts[log_count:]
    on_two = SPECS[scenario.fault].injection is Injection.TWODISK
    sizes_mib = disks_mib(filesystem_named(scenario.filesystem), on_two=on_two)
    origin = Origin(template.identity, template.image, qemu_version())
    try:
        with archive.write(kept, path, sizes_mib, traces, scenario.device.atomic_bytes).open() as logs:
            facts = soundness.facts_of(scenario, origin, report, logs)
    except LogError as error:
        raise RecordingError(f"the recording of {scenario.id} is void: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    return archive.save(folder, kept, replace(facts, reproduced=reproduced), traces)


def record_live(scenario: Scenario, template: Template) -> list[LiveFinding]:
    """Run a scenario once more and return the findings of the run itself; keep nothing."""
    report, parts = run(scenario, template)
    findings: list[LiveFinding] = livecuts.proven(scenario, report, parts) if "rounds" in report else report["live"]
    return findings


def run(scenario: Scenario, template: Template) -> tuple[dict[str, Any], list[bytes]]:
    """Return the guest's report on a recording, and the parts: the log, or the logs, or what live cuts left."""
    parts = []
    orders = json.dumps(asdict(scenario.orders)).encode()
    with template.clone(orders=orders) as machine:
        while "part_bytes" in (report := machine.receive(_RECORD_LIMIT_S)):
            part = bytearray()
            machine.receive_bytes(report["part_bytes"], _RECORD_LIMIT_S, part.extend)
            parts.append(bytes(part))
    return report, parts


def _proven_live(
    scenario: Scenario, report: Mapping[str, Any], parts: Sequence[bytes], folder: Path
) -> list[LiveFinding]:
    """Return the findings of live cuts; if no honest disk could leave this, keep everything and raise LegalityError."""
    try:
        return livecuts.proven(scenario, report, parts)
    except LegalityError as error:
        evidence = folder / _EVIDENCE
        atomic_write(evidence, b"".join(map(archive.pack, parts)))
        raise LegalityError(f"{error}; the logs and what remained are in {evidence}") from error
