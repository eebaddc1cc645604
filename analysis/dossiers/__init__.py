"""All that is known about an engine besides its code: promises, controls, expected survivors, known bugs, with sources.

A dossier is a module named by an entry point of the group `rig.dossiers`, under the name of its engine. A promise holds
for honest use of the documented settings. A shim that swallows syncs does not change a promise but breaks it, which
shows that the rig can notice a loss. Whatever a dossier does not mention is neither promised nor denied.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from rig.contract.errors import UsageError
from rig.filesystems import syncs_on_close

GROUP = "rig.dossiers"


class Keeps(StrEnum):
    """How many acknowledged transactions may be lost under a promise, the strictest first."""

    NOTHING_LOST = "loses nothing"
    LAST = "may lose the last"
    SUFFIX = "may lose a suffix"
    ANY_WHOLE = "may lose any, each as a whole"
    ANYTHING = "anything goes"


@dataclass(frozen=True)
class Promise:
    """One documented guarantee; `bound` says in words how far a loss may reach, empty if `keeps` says everything."""

    keeps: Keeps
    # Whether the database must come back as some prefix of its transactions, undamaged. If not, damage is conceded.
    atomic: bool
    bound: str
    source: str
    note: str
    # Where a transaction has several databases: whether that holds for all of them together, or for each alone.
    across: bool = True
    # Whether nothing is promised before the first acknowledgement: the first transaction makes what it works on.
    begins_with_ack: bool = False
    # Why a promise that exists is not held against the engine here, so that `keeps` is ANYTHING; empty if it is held.
    withheld: str = ""
    # Whether it covers what was never acknowledged, but shown after a restart of the killed database.
    covers_shown: bool = False
    # Whether the engine may refuse to open what it finds damaged, and must then not open it.
    may_refuse: bool = False
    # Whether transactions that were not acknowledged may be there in part, if the engine says so.
    may_tear: bool = False

    @property
    def text(self) -> str:
        """Return the promise in a few words, for example `may lose a suffix, atomic`."""
        atomic = "undamaged" if self.may_tear else "atomic" if self.across else "atomic in each database"
        is_damage_conceded = not self.atomic and self.keeps in {Keeps.NOTHING_LOST, Keeps.LAST}
        words = (atomic if self.atomic else "", "may be damaged" if is_damage_conceded else "")
        return ", ".join(filter(None, (self.keeps.value, *words, "may refuse to open" if self.may_refuse else "")))


def as_after_a_cut(promise: Promise | None) -> Promise | None:
    """Return what a promise about power cuts means for errors of the disk, where the documentation is silent."""
    note = "Taken from the power cut: the documentation does not speak of errors of the disk."
    return promise and replace(promise, note=f"{note} {promise.note}".strip())


@dataclass(frozen=True)
class Expectation:
    """Whether leaving a sync out should break the promise; `reason` says why it matters or why it does not."""

    reason: str
    source: str
    matters: bool


def matters(reason: str, source: str) -> Expectation:
    """Return that leaving the sync out should break the promise."""
    return Expectation(reason, source, matters=True)


def needless(reason: str, source: str) -> Expectation:
    """Return that the promise holds without the sync."""
    return Expectation(reason, source, matters=False)


Version = tuple[int, ...]


@dataclass(frozen=True)
class KnownBug:
    """One bug. Releases from `first` until `fixed` have it, except on branches with a backported correction."""

    name: str
    first: Version
    fixed: Version
    # For each such branch the first release with the correction.
    backported: tuple[Version, ...]
    # setting -> the choices under which it can show.
    settings: Mapping[str, tuple[str, ...]]
    # A workload with fewer concurrent connections cannot trigger it.
    connections_min: int
    signal: str
    source: str
    # The workloads that can trigger it; empty for all.
    workloads: tuple[str, ...] = ()

    def affects(self, version: str) -> bool:
        """Return whether a release has the bug; `version` as the engine reports it, for example 3.8.7.1."""
        own = parse_version(version)
        if not self.first <= own < self.fixed:
            return False
        return not any(own[: len(fix) - 1] == fix[:-1] and own >= fix for fix in self.backported)


@dataclass(frozen=True)
class Controls:
    """Which scenarios must fail; a night in which they do not proves nothing. Settings are named as in ids."""

    # Fault -> settings that lose at least one acknowledged transaction under it.
    must_lose: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Settings that close or unlock what they wrote; some file systems make that durable.
    closing: tuple[str, ...] = ()
    # Fault -> settings that come back damaged at least once.
    must_damage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Some of the settings: where writes may be reordered or torn, some scenario with these must show damage.
    damaging: Mapping[str, str] = field(default_factory=dict)
    # Program of the engine's spec -> why it breaks the promise, in a few words.
    programs: Mapping[str, str] = field(default_factory=dict)
    # Why the engine may never come back whole if every sync is swallowed; empty: some state must, with a loss.
    damaged_without_syncs: str = ""

    def losing(self, fault: str, filesystem: str) -> tuple[str, ...]:
        """Return the settings that must lose a transaction under a fault on a file system."""
        return tuple(name for name in self.must_lose.get(fault, ()) if not self.is_spared(name, filesystem))

    def is_spared(self, name: str, filesystem: str) -> bool:
        """Return whether a file system makes durable what these settings write, synced or not."""
        return name in self.closing and syncs_on_close(filesystem)


@runtime_checkable
class Dossier(Protocol):
    """What a dossier module offers."""

    CONTROLS: Controls
    KNOWN_BUGS: tuple[KnownBug, ...]

    def promise(self, settings: Mapping[str, str], fault: str) -> Promise | None:
        """Return what is promised for these settings under this fault, or None if it is not known."""

    def expectation(self, filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:
        """Return what is known about leaving a kind of sync out, or None; reasons differ among file systems."""


class _Unknown:
    """The dossier used for an engine without one."""

    CONTROLS = Controls()
    KNOWN_BUGS: tuple[KnownBug, ...] = ()

    def promise(self, settings: Mapping[str, str], fault: str) -> None:
        """Return that no promise is known."""

    def expectation(self, filesystem: str, settings: Mapping[str, str], kind: str) -> None:
        """Return that no expectation is known."""


@cache
def dossier_of(engine: str) -> Dossier:
    """Return an engine's dossier, or an empty one; raise UsageError if its entry point does not name a dossier."""
    points = entry_points(group=GROUP, name=engine)
    if not points:
        return _Unknown()
    (point, *_) = points
    try:
        module = importlib.import_module(point.value)
    except ImportError as error:
        raise UsageError(
            f"the dossier of {engine!r} (entry point {GROUP}, {point.value}) cannot be used: {error}"
        ) from None
    if not isinstance(module, Dossier):
        raise UsageError(
            f"{point.value}, the dossier of {engine!r}, is not a complete dossier; see docs/extend/engine.md"
        )
    return module


def parse_version(version: str) -> Version:
    """Return the numbers at the beginning of a version; a suffix such as `-beta` is ignored."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else (0,)


def control_settings(engine: str, fault: str, filesystem: str = "") -> tuple[str, ...]:
    """Return the names of the settings that must be run as controls of this engine under this fault.

    On an unknown file system no settings are spared.
    """
    controls = dossier_of(engine).CONTROLS
    return (*controls.losing(fault, filesystem), *controls.must_damage.get(fault, ()))
