"""The available engines: packages named by entry points of the group `rig.engines`, inside or outside this project.

An entry point is `NAME = "package.of.the.engine"`. Only the host looks them up; a guest finds the package in its
orders.
"""

from __future__ import annotations

from functools import cache

from rig.contract.errors import UsageError
from rig.engines.engine import Engine, load

GROUP = "rig.engines"


@cache
def engines(*, given: bool = False) -> tuple[Engine, ...]:
    """Return the engines, sorted by name; raise UsageError for an entry point that does not name an engine.

    Engines that need a build from the user (`Spec.needs_build`) are included only with `given`.
    """
    # Imported here, because a guest looks up no engine and would load a dozen more modules.
    from importlib.metadata import entry_points

    loaded = (_load(point.name, point.value) for point in sorted(entry_points(group=GROUP)))
    return tuple(engine for engine in loaded if given or not engine.spec.needs_build)


def find_engine(name: str) -> Engine | None:
    """Return the engine with this name, or None: a stored run may use one that is not installed here."""
    return next((engine for engine in engines(given=True) if engine.name == name), None)


def engine_named(name: str) -> Engine:
    """Return the engine with this name; raise UsageError naming the choices."""
    if engine := find_engine(name):
        return engine
    raise UsageError(f"unknown engine {name!r}; there are: {', '.join(engine.name for engine in engines())}")


def _load(name: str, module: str) -> Engine:
    try:
        engine = load(module)
    except (ImportError, TypeError) as error:
        raise UsageError(
            f"the engine {name!r} (entry point {GROUP}, package {module}) cannot be used: {error}"
        ) from None
    if engine.name != name:
        raise UsageError(f"the entry point {name!r} of {GROUP} names {module}, whose SPEC calls itself {engine.name!r}")
    return engine
