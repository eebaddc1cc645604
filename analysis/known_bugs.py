"""Bugs of releases that a durability rig has to find again, and that explain a result which no setting explains.

A table of data, with the releases that have each bug and its source. A run with an affected release names the bug
beside its results: a broken promise is then no news, and a kept one was not asked the question. The tests of
`tests/durability/test_known_bugs.py` find each bug in a release that has it, and not in one that has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.analysis.outcome import Summary

Version = tuple[int, ...]
# Of every workload there is.
_CONNECTIONS = 1


@dataclass(frozen=True)
class KnownBug:
    """One bug. A release has it from `first` until `fixed`, but for branches that it was corrected in on their own."""

    name: str
    engine: str
    first: Version
    fixed: Version
    # The first release with the correction on a branch older than `fixed`.
    backported: tuple[Version, ...]
    # setting -> the choices under which it can show.
    settings: Mapping[str, tuple[str, ...]]
    # A workload with fewer connections at a time cannot meet it.
    connections_min: int
    signal: str
    source: str

    def affects(self, version: str) -> bool:
        """Return whether a release has the bug; `version` as the engine says it, such as 3.8.7.1."""
        own = _parsed(version)
        if not self.first <= own < self.fixed:
            return False
        return not any(own[: len(fix) - 1] == fix[:-1] and own >= fix for fix in self.backported)


KNOWN_BUGS = (
    KnownBug(
        name="truncate-not-synced",
        engine="sqlite",
        first=(0,),
        fixed=(3, 8, 7, 1),
        backported=(),
        settings={"journal_mode": ("truncate",), "synchronous": ("full", "extra")},
        connections_min=1,
        signal="the journal is truncated and not synced, so the last acknowledged transaction may be rolled back",
        source="sqlite.org release log of 3.8.7.1",
    ),
    KnownBug(
        name="wal-reset",
        engine="sqlite",
        first=(3, 7, 0),
        fixed=(3, 51, 3),
        backported=((3, 44, 6), (3, 50, 7)),
        settings={"journal_mode": ("wal",)},
        connections_min=2,
        signal="a checkpoint that races the reset of the WAL by another connection loses committed transactions, "
        "without any crash",
        source="sqlite.org/wal.html, section The WAL-Reset Bug",
    ),
)


def known_bugs(engine: str, version: str, settings: Mapping[str, str]) -> list[KnownBug]:
    """Return the bugs that a workload can meet in a release at these settings."""
    return [
        bug
        for bug in KNOWN_BUGS
        if bug.engine == engine and bug.affects(version) and bug.connections_min <= _CONNECTIONS
        if all(settings.get(name) in choices for name, choices in bug.settings.items())
    ]


def warnings(summary: Summary) -> list[str]:
    """Return a line for each known bug that the cells of a run can meet, naming their settings."""
    met: dict[tuple[str, str, str], tuple[KnownBug, dict[str, None]]] = {}
    for row in summary.rows:
        cell = row.outcome.cell
        version = cell.recording.engine_version.partition(" ")[0]
        for bug in known_bugs(cell.engine, version, cell.settings):
            _, names = met.setdefault((cell.engine, version, bug.name), (bug, {}))
            names[row.outcome.settings_name] = None
    return [
        f"{engine} {version} has the known bug {bug.name}, corrected in {_dotted([*bug.backported, bug.fixed])}: "
        f"{bug.signal} ({bug.source}); it concerns {', '.join(names)}"
        for (engine, version, _), (bug, names) in met.items()
    ]


def _parsed(version: str) -> Version:
    """Return the numbers at the beginning of a version; what follows them, such as `-beta`, says nothing here."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else (0,)


def _dotted(versions: Iterable[Version]) -> str:
    return ", ".join(".".join(map(str, version)) for version in versions)
