"""Builds of an engine that the user names, for engines whose package has a module `builds`. Only on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rig.contract.errors import HostError, UsageError
from rig.contract.scenario import Scenario
from rig.engines.engine import Engine
from rig.engines.registry import engine_named

# The guest has the builds here, each under its name.
FOLDER = "/run/code/libraries"
# A guest that was made by the user's own recipe has the recipe's name here.
IMAGE = "/run/code/image"
# Where Debian's packages put shared libraries.
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Library:
    """A build, kept in the cache; guest and scenarios call it `name`, which begins with its kind and a dash."""

    engine: str
    name: str
    path: Path
    # The name of the user's own recipe for its guest (`rig.images.recipes`), empty for the image of the engine.
    image: str = ""
    # With how many clients a user's program warms a machine up, besides once with one.
    client_count: int = 1


@dataclass(frozen=True)
class ImageContents:
    """What a guest image has: its packages, as lines `name TAB version`, and whether there is a file at a path."""

    packages: str
    has: Callable[[str], bool]


@runtime_checkable
class Builds(Protocol):
    """What a module `builds` offers."""

    def library(self, word: str) -> Library:
        """Return the build that the user names, fetched if necessary; raise UsageError for one that cannot be used."""

    def library_of_run(self, wanted: str, word: str | None) -> Library | None:
        """Return the build that a run calls `wanted`; `word` is the build that the user names, or None."""

    def require_loadable(self, library: Library, guest: ImageContents) -> None:
        """Raise UsageError if a build needs more than this guest has."""


def require_in_guest(what: str, needed: Collection[str], glibc: tuple[int, ...], guest: ImageContents) -> None:
    """Raise UsageError unless a guest has the shared libraries, and the C library, that a build needs.

    `what` begins the message, for example `the program`.
    """
    if foreign := sorted(name for name in set(needed) if not guest.has(f"{_LIBRARIES}/{name}")):
        raise UsageError(f"{what} needs {', '.join(foreign)}, which the guest does not have")
    has = guest_glibc(guest.packages)
    if glibc > has:
        raise UsageError(
            f"{what} needs the C library {_version_text(glibc)}, the guest has {_version_text(has)}; "
            "build it on an older system"
        )


def guest_glibc(packages: str) -> tuple[int, ...]:
    """Return the version of the C library from the lines `name TAB version` of an image's packages."""
    match = re.search(r"^libc6(?::\w+)?\t(\d+)\.(\d+)", packages, re.MULTILINE)
    if not match:
        raise HostError("the guest image lists no libc6 among its packages; build it again: rig image build")
    return int(match[1]), int(match[2])


def _version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def library_for(engine_names: Collection[str], word: str) -> Library:
    """Return the build that the user names for a run; raise UsageError unless exactly one of its engines has builds."""
    knowing = [
        engine_named(name) for name in sorted(engine_names) if isinstance(engine_named(name).part("builds"), Builds)
    ]
    if len(knowing) != 1:
        names = ", ".join(sorted(engine_names))
        raise UsageError(f"--library needs exactly one engine that accepts another build, but this run has: {names}")
    return builds_of(knowing[0]).library(word)


def library_of_run(scenario: Scenario, word: str | None) -> Library | None:
    """Return the build of a stored scenario; `word` is the build that the user names, or None."""
    wanted = scenario.tuning.get("library", "")
    if not wanted and word is None:
        return None
    return builds_of(engine_named(scenario.engine)).library_of_run(wanted, word)


def builds_of(engine: Engine) -> Builds:
    """Return the module that finds builds of an engine; raise UsageError if the engine has only the guest's build."""
    builds = engine.part("builds")
    if not isinstance(builds, Builds):
        raise UsageError(f"{engine.name} is measured only in the build of the guest image; leave --library out")
    return builds
