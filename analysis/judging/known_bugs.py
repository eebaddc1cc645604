"""Known bugs of releases: the rig must find them again, and they explain results that no setting explains.

The dossier of each engine lists them, with the releases that have each bug and its source. A run with an affected
release names the bug next to its results: a broken promise is then expected, and a kept one means that the run did not
trigger the bug. `tests/durability/test_known_bugs.py` finds each bug in a release that has it, and not in one that has
been corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rig.analysis.dossiers import KnownBug, Version, dossier_of
from rig.analysis.judging.outcome import Summary

# No workload has two connections that commit or move the log at the same time.
_CONNECTIONS = 1


def known_bugs(engine: str, version: str, settings: Mapping[str, str], workload: str) -> list[KnownBug]:
    """Return the bugs that a workload can trigger in a release at these settings."""
    return [
        bug
        for bug in dossier_of(engine).KNOWN_BUGS
        if bug.affects(version) and bug.connections_min <= _CONNECTIONS
        if not bug.workloads or workload in bug.workloads
        if all(settings.get(name) in choices for name, choices in bug.settings.items())
    ]


def warnings(summary: Summary) -> list[str]:
    """Return a line for each known bug that the scenarios of a run can trigger, naming their settings."""
    met: dict[tuple[str, str, str], tuple[KnownBug, dict[str, None]]] = {}
    for row in summary.rows:
        scenario = row.outcome.scenario
        version = row.outcome.measured.recording.engine_version.partition(" ")[0]
        for bug in known_bugs(scenario.engine, version, scenario.settings, scenario.workload_name):
            _, names = met.setdefault((scenario.engine, version, bug.name), (bug, {}))
            names[row.outcome.settings_name] = None
    return [
        f"{engine} {version} has the known bug {bug.name}, "
        f"corrected in {_versions_text([*bug.backported, bug.fixed])}: "
        f"{bug.signal} ({bug.source}); it affects {', '.join(names)}"
        for (engine, version, _), (bug, names) in met.items()
    ]


def _versions_text(versions: Iterable[Version]) -> str:
    return ", ".join(".".join(map(str, version)) for version in versions)
