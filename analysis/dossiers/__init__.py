"""All that is known of an engine beside its code: promises, controls, expected survivors, known bugs, with sources.

A dossier is a module named by an entry point of the group `rig.dossiers`, under the name of its engine. What a promise
says holds for honest use of the documented settings: a shim that swallows syncs does not change a promise, it breaks
it, and that is how the rig shows that it has teeth. What a dossier does not know is not promised and not denied.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from rig.contract.errors import UsageError

GROUP = "rig.dossiers"


class Keeps(StrEnum):
    """How many acknowledged transactions a promise lets go, from strictest to none."""

    NOTHING_LOST = "loses nothing"
    LAST = "may lose the last"
    SUFFIX = "may lose a suffix"
    ANYTHING = "anything goes"


@dataclass(frozen=True)
class Promise:
    """One documented guarantee; `bound` says in words how far a loss may reach, empty when `keeps` says it all."""

    keeps: Keeps
    # Whether the database must come back as some prefix of its transactions, undamaged.
    atomic: bool
    bound: str
    source: str
    note: str

    @property
    def text(self) -> str:
        """Return the promise in a few words, such as `may lose a suffix, atomic`."""
        return f"{self.keeps.value}, atomic" if self.atomic else self.keeps.value


@dataclass(frozen=True)
class Expectation:
    """Whether leaving a sync out ought to break the promise; `reason` says why it matters or why it does not."""

    reason: str
    source: str
    matters: bool


def matters(reason: str, source: str) -> Expectation:
    """Return that leaving the sync out ought to break the promise."""
    return Expectation(reason, source, matters=True)


def spared(reason: str, source: str) -> Expectation:
    """Return that the promise holds without the sync."""
    return Expectation(reason, source, matters=False)


Version = tuple[int, ...]


@dataclass(frozen=True)
class KnownBug:
    """One bug. A release has it from `first` until `fixed`, but for branches that it was corrected in on their own."""

    name: str
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
        own = parsed(version)
        if not self.first <= own < self.fixed:
            return False
        return not any(own[: len(fix) - 1] == fix[:-1] and own >= fix for fix in self.backported)


@dataclass(frozen=True)
class Controls:
    """Which scenarios must fail: a night in which nothing fails proves nothing. Settings by their name in ids."""

    # Fault -> settings that lose at least one acknowledged transaction under it.
    must_lose: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Fault -> settings that come back damaged at least once.
    must_damage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Part of the settings: where writes may be reordered or torn, some scenario that has it shows damage.
    damaging: Mapping[str, str] = field(default_factory=dict)
    # Program of the engine's spec -> why it breaks its promise, in a few words.
    programs: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Dossier(Protocol):
    """What such a module offers."""

    CONTROLS: Controls
    KNOWN_BUGS: tuple[KnownBug, ...]

    def promise(self, settings: Mapping[str, str], fault: str) -> Promise | None:
        """Return what is promised for these settings under this fault, or None if it is not known."""

    def expectation(self, filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:
        """Return what is known of leaving a kind of sync out, or None; reasons differ among file systems."""


class _Unknown:
    """The dossier of an engine that has none."""

    CONTROLS = Controls()
    KNOWN_BUGS: tuple[KnownBug, ...] = ()

    def promise(self, settings: Mapping[str, str], fault: str) -> None:
        """Know of no promise."""

    def expectation(self, filesystem: str, settings: Mapping[str, str], kind: str) -> None:
        """Expect nothing."""


@cache
def dossier_of(engine: str) -> Dossier:
    """Return an engine's dossier, or one that knows nothing; raise UsageError for an entry point that names none."""
    found = entry_points(group=GROUP, name=engine)
    if not found:
        return _Unknown()
    (point, *_) = found
    try:
        module = importlib.import_module(point.value)
    except ImportError as error:
        raise UsageError(
            f"the dossier of {engine!r} (entry point {GROUP}, {point.value}) cannot be used: {error}"
        ) from None
    if not isinstance(module, Dossier):
        raise UsageError(f"{point.value}, the dossier of {engine!r}, lacks what a dossier has; see docs/extending.md")
    return module


def parsed(version: str) -> Version:
    """Return the numbers at the beginning of a version; what follows them, such as `-beta`, says nothing here."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else (0,)


def control_settings(engine: str, fault: str) -> tuple[str, ...]:
    """Return the names of the settings that must be run as controls of this engine under this fault."""
    controls = dossier_of(engine).CONTROLS
    return (*controls.must_lose.get(fault, ()), *controls.must_damage.get(fault, ()))
