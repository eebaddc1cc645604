"""The arms of a measurement: settings under a load, by the names that users type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rig.contract.errors import UsageError
from rig.engines import Engine, Sharing, engines, find_engine, settings_name
from rig.speed.trials.loads import Load


@dataclass(frozen=True)
class Arm:
    """One engine with settings and a load."""

    engine: Engine
    settings: Mapping[str, str]
    tuning: Mapping[str, str]
    load: Load
    name: str

    @property
    def all_settings(self) -> Mapping[str, str]:
        """Return everything that the driver is given."""
        return {**self.tuning, **self.settings}


def arms_of(patterns: Sequence[str], loads: Sequence[Load], changed: Mapping[str, str]) -> list[Arm]:
    """Return the arms that patterns name, under each load; raise UsageError for a pattern without an arm.

    A pattern is `SETTINGS` or `ENGINE-SETTINGS`, as in the ids of scenarios; without an engine it means the default
    engine. Without patterns: every distinct setting of the default engine that promises something when a process dies,
    with the settings that lose nothing first. `changed` are settings that are not part of a name, such as a page size.
    """
    chosen = [arm for pattern in patterns for arm in _arms_named(pattern)] if patterns else _usual(_default())
    chosen = list({(engine.name, settings_name(settings)): (engine, settings) for engine, settings in chosen}.values())
    several = len({engine.name for engine, _ in chosen}) > 1 or any(engine != _default() for engine, _ in chosen)
    made = []
    for load in loads:
        for engine, settings in chosen:
            if load.is_shared and engine.spec.sharing is Sharing.NONE:
                raise UsageError(
                    f"{engine.name} takes no --writers above 1 and no --readers: {engine.spec.alone_because}"
                )
            name = settings_name(settings)
            name = f"{engine.name}-{name}" if several else name
            name = f"{name}, {load.name}" if len(loads) > 1 else name
            made.append(Arm(engine, settings, _tuning(engine, changed), load, name))
    return made


def _usual(engine: Engine) -> list[tuple[Engine, Mapping[str, str]]]:
    spec = engine.spec
    names = [settings_name(settings) for settings in spec.all_settings() if not spec.is_volatile(settings)]
    first = [name for name in spec.strict if name in names]
    rest = [name for name in names if name not in spec.same_as and name not in first]
    return [(engine, spec.settings_named(name)) for name in (*first, *rest)]


def _arms_named(pattern: str) -> list[tuple[Engine, Mapping[str, str]]]:
    word, dash, rest = pattern.partition("-")
    engine = find_engine(word) if dash else _default()
    if engine is None:
        names = ", ".join(engine.name for engine in _measurable())
        raise UsageError(f"unknown engine {word!r} in {pattern!r}; there are: {names}")
    if engine not in _measurable():
        raise UsageError(f"the transactions of {engine.name} are its own: it has no settings to compare by speed")
    wanted = rest if dash else pattern
    matching = [settings for settings in engine.spec.all_settings() if fnmatchcase(settings_name(settings), wanted)]
    if not matching:
        names = ", ".join(map(settings_name, engine.spec.all_settings()))
        raise UsageError(f"no settings of {engine.name} match {wanted!r}; there are: {names}")
    return [(engine, settings) for settings in matching]


def _tuning(engine: Engine, changed: Mapping[str, str]) -> Mapping[str, str]:
    if unknown := sorted(set(changed) & set(engine.spec.settings)):
        raise UsageError(f"{', '.join(unknown)} is part of the name of an arm: name another arm instead of --tune")
    return {**engine.spec.tuning, **changed}


def _default() -> Engine:
    return next(engine for engine in _measurable() if engine.spec.is_default)


def _measurable() -> list[Engine]:
    return [engine for engine in engines() if not engine.own_driver]
