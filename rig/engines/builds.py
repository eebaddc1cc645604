"""Builds of an engine that the user names, where its package has a module `builds`. Only on the host."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rig.contract.errors import UsageError
from rig.contract.scenario import Scenario
from rig.engines.engine import Engine
from rig.engines.registry import named


@dataclass(frozen=True)
class Library:
    """A build, kept in the cache; `name` is what it is called in the guest and in scenarios."""

    engine: str
    name: str
    path: Path


@runtime_checkable
class Builds(Protocol):
    """What a module `builds` offers."""

    def library(self, word: str) -> Library:
        """Return the build that the user names, fetching it if need be; raise UsageError for one that cannot be."""

    def library_of_run(self, wanted: str, word: str | None) -> Library | None:
        """Return the build that a run was made with, by its name there; `word` is what the user says it is, or None."""

    def require_loadable(self, found: Library, packages: str) -> None:
        """Raise UsageError if a build asks for more than a guest with these packages (`name TAB version`) has."""


def library_for(engine_names: Collection[str], word: str) -> Library:
    """Return the build that the user names for a selection; raise UsageError unless one of its engines knows builds."""
    knowing = [named(name) for name in sorted(engine_names) if isinstance(named(name).part("builds"), Builds)]
    if len(knowing) != 1:
        names = ", ".join(sorted(engine_names))
        raise UsageError(f"--library is for one engine that can be given another build, and this run has: {names}")
    return builds_of(knowing[0]).library(word)


def library_of_run(scenario: Scenario, word: str | None) -> Library | None:
    """Return the build that a stored scenario was measured with; `word` is what the user says it is, or None."""
    wanted = scenario.tuning.get("library", "")
    if not wanted and word is None:
        return None
    return builds_of(named(scenario.engine)).library_of_run(wanted, word)


def builds_of(engine: Engine) -> Builds:
    """Return what finds builds of an engine; raise UsageError if there is only the one of the guest."""
    found = engine.part("builds")
    if not isinstance(found, Builds):
        raise UsageError(f"{engine.name} is measured in the build of the guest image only; leave --library out")
    return found
