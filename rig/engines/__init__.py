"""Database engines, one package each. The host reads the spec; the driver runs in the guest."""

from rig.engines.engine import (
    Database,
    Driver,
    EnduringDatabase,
    EnduringDriver,
    Engine,
    EventfulDatabase,
    LeavableDatabase,
    ObservantDatabase,
    ObservantDriver,
    Program,
    Spec,
    Tuning,
    enduring,
    load,
    opener,
    settings_name,
)
from rig.engines.registry import engines, found, named

__all__ = [
    "Database",
    "Driver",
    "EnduringDatabase",
    "EnduringDriver",
    "Engine",
    "EventfulDatabase",
    "LeavableDatabase",
    "ObservantDatabase",
    "ObservantDriver",
    "Program",
    "Spec",
    "Tuning",
    "enduring",
    "engines",
    "found",
    "load",
    "named",
    "opener",
    "settings_name",
]
